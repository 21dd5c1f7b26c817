"""Exports a small network of spandrel and compares the file with spandrel's own call."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from studies.networks.children import short

RESULTS = Path(__file__).with_name("results.json")


def warm() -> None:
    """Import and read once, for all children, what every export needs."""
    import torch

    import nystra.export.pipeline  # noqa: F401
    from nystra.export.tracing.site_graph import trace_network
    from nystra.models.loading import load
    from studies.networks.small import save_small

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        loaded = load(save_small("Compact", Path(folder, "small.pth")))
    trace_network(loaded.network, loaded.facts, 20)


def outcome_of(name: str) -> dict[str, Any]:
    """Return what comes of one network."""
    from nystra.core.errors import NystraError
    from nystra.models.loading import load
    from studies.networks.small import SMALL, save_small

    outcome: dict[str, Any] = {"versions": {key: version(key) for key in ("spandrel", "torch")}}
    with tempfile.TemporaryDirectory() as folder:
        try:
            checkpoint = save_small(name, Path(folder, "small.pth"))
            hyper = SMALL[name].hyper
            outcome |= {"told": hyper} if hyper else {}
            loaded = load(checkpoint, **hyper)
            facts = loaded.facts
            outcome |= {"read_by": facts.architecture, "multiple": facts.size_multiple}
            outcome |= {"minimum": facts.size_minimum, "warnings": list(loaded.warnings)}
            outcome |= _exported(checkpoint, facts, hyper)
        except NystraError as error:
            outcome["failed"] = short(error)
        except Exception as error:  # a fault of ours: it is to stand in the table
            outcome["failed"] = f"{type(error).__name__}: {short(error)}"
    return outcome


def _exported(checkpoint: Path, facts: Any, hyper: dict[str, Any]) -> dict[str, Any]:
    from nystra.core.errors import NystraError
    from nystra.export import ExportOptions, export_model

    outcome: dict[str, Any] = {}
    static = None
    if facts.sides is not None:
        static = facts.inputs[0].shape({})
    target = checkpoint.with_name("model.onnx")
    options = ExportOptions(speed=False, static=static, hyper=hyper)
    try:
        result = export_model(checkpoint, target, options, _say)
    except NystraError as error:
        if static is not None:
            raise
        outcome["dynamic"] = short(error)
        side = 2 * facts.cell
        static = (1, facts.input_channels, side, side)
        result = export_model(checkpoint, target, replace(options, static=static), _say)
    outcome |= {"static": static, "nodes": result.nodes, "sites": len(result.source.resolved)}
    reports = result.validation.reports.values()
    outcome["difference"] = max(size["max_abs"] for report in reports for size in report["sizes"])
    outcome["compared"] = _compared(checkpoint, target, facts, static)
    outcome |= _linear(checkpoint, static, hyper)
    return outcome


def _say(step: str) -> None:
    sys.stderr.write(f"{time.process_time():6.1f} s  {step}\n")


def _linear(checkpoint: Path, static: Any, hyper: dict[str, Any]) -> dict[str, str]:
    """Return at how many sites the kernel Nystrom form stands in a second export, if any."""
    from nystra.core.errors import NystraError, UnsupportedModelError
    from nystra.export import ExportOptions, Plan, export_model, mechanism

    plan = Plan(default=mechanism("nystra", landmarks=(2, 2)))
    options = ExportOptions(plan, speed=False, static=static, hyper=hyper)
    try:
        result = export_model(checkpoint, checkpoint.with_name("linear.onnx"), options, _say)
    except UnsupportedModelError:  # no site
        return {}
    except NystraError as error:
        return {"linear": short(error)}
    served = [site.name for site in result.source.resolved.values()]
    return {"linear": f"{served.count('nystra')} of {len(served)}"} if served else {}


def _compared(checkpoint: Path, model: Path, facts: Any, static: Any) -> list[dict[str, Any]]:
    """Return the differences between plain onnxruntime and spandrel's own call, size by size."""
    import numpy as np
    import onnxruntime as ort
    import torch
    from spandrel import ModelLoader

    from nystra.export.load.images import feeds_of, photographs, validation_sizes
    from nystra.models.checkpoints.checkpoint import read_checkpoint
    from nystra.runtime.images.images import read_image

    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    own = ModelLoader().load_from_state_dict(dict(read_checkpoint(checkpoint).state)).eval()
    pixels = read_image(next(iter(photographs().values()))).pixels
    sizes = validation_sizes(facts) if static is None else [{}]
    if own.size_requirements.square:  # it pads to squares, we do not
        sizes = [dict.fromkeys(size, max(size.values(), default=0)) for size in sizes]
    compared = []
    for size in sizes:
        feeds = feeds_of(facts if static is None else facts.fix_lengths(static), pixels, size)
        got = session.run(None, feeds)[0]
        with torch.no_grad():
            images = [torch.from_numpy(array) for array in feeds.values()]
            expected = _own_call(own, images).clamp(0, 1).numpy()
        seen = float(np.mean((expected > 0) & (expected < 1)))
        shape = "x".join(map(str, next(iter(feeds.values())).shape[2:]))
        difference = float(np.max(np.abs(np.clip(got, 0, 1) - expected)))
        compared.append({"size": shape, "difference": difference, "seen": seen})
    return compared


def _own_call(own: Any, images: list[Any]) -> Any:
    """Return what spandrel makes of images, below its least side too, up to which it enlarges.

    Sorts are stable: what is equal would have another order on every kind of processor (ATD).
    """
    from nystra.models.sizes.plain_run import run_plainly

    with run_plainly():
        if min(images[0].shape[2:]) < own.size_requirements.minimum:
            return own._call_fn(own.model, *images)
        return own(*images)
