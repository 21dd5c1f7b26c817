"""Measure the accuracy drop of low precision. The table is in studies/measurements/precision.md.

The table is in studies/measurements/precision.md.

    python -m studies.precision.half           # all of it
    python -m studies.precision.half uformer   # the rows with this prefix

Every number comes from the export's own images at its three sizes. ``values`` and ``stream`` are
the largest absolute values in tensors of the low type and in sums of two maps; ``PSNR`` is the
lowest of a float32 file that rounds where the low file does against the float32 file, ``half()``
that of the whole network in float16 (PyTorch), ``autocast`` that of ``torch.autocast("cpu")``.
Networks with random weights (golden, tests) are not trained: their values mean little, their PSNR
is meaningful.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from safetensors.torch import load_file, save_file

from nystra.core.errors import NystraError
from nystra.export import Plan
from nystra.export import mechanism as planned
from nystra.export.attention.site import resolve, swap
from nystra.export.graph.policies import find_precision_policy
from nystra.export.graph.precision.lowering import Lowered, lower_model
from nystra.export.graph.precision.ranges import measure_largest
from nystra.export.graph.precision.types import find_float_tensors
from nystra.export.load.fixed import fix_facts
from nystra.export.load.images import validation_feeds
from nystra.export.pytorch.network_session import NetworkSession
from nystra.export.tracing.bodies import attach_bodies
from nystra.export.tracing.site_graph import trace_network
from nystra.export.validate.fake_quantized import round_network
from nystra.models import load, pretrained_path
from nystra.runtime import Session
from studies.precision.small import PATCH_NETWORKS, save_patch_network, save_rvrt

GOLDEN = ("swinir_classical_x2", "swinir_jpeg_gray", "hat_x2_w16", "csnln_x2")
CLIP = (1, 4, 3, 20, 24)
"""The only shape of a clip that is measured."""
STRESS = 3000.0
"""Factor of the weights that write into the residual stream of the stressed network."""


def networks(folder: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield a label, a checkpoint and a mechanism."""
    for name in ("swinir_x2_w16", "swinir_x2_w32_nobias", "hat_x2_w16", "uformer_denoise25_w16"):
        for mechanism in ("full", "nystra"):
            yield name, pretrained_path(name), mechanism
    yield f"{'swinir_x2_w16'} (stress)", stressed(folder / "stress.safetensors"), "nystra"
    for name in GOLDEN:
        path = save_golden(name, folder / f"{name}.safetensors")
        yield f"{name} (random)", path, "full"
    for mechanism in ("full", "nystra"):
        yield "rvrt (random, tiny)", save_rvrt(folder / "rvrt.safetensors"), mechanism
    for name in PATCH_NETWORKS:
        path = save_patch_network(name, folder / f"{name}.safetensors")
        for mechanism in ("full", "psal"):
            yield f"{name} (random, tiny)", path, mechanism


def save_golden(name: str, path: Path) -> Path:
    """Write the weights of a reference case of the tests as a checkpoint."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "helpers"))
    from golden_cases import golden

    case = golden(name)
    weights = {
        key: torch.from_numpy(np.ascontiguousarray(weight))
        for key, weight in case.weights().items()
    }
    save_file(weights, path, {"nystra": json.dumps(case.constructor)})
    return path


def stressed(path: Path) -> Path:
    """Return the window-16 network with a residual stream that float16 cannot hold."""
    source = pretrained_path("swinir_x2_w16")
    state = load_file(source)
    for key in state:
        if key.endswith(("attn.proj.weight", "attn.proj.bias", "mlp.fc2.weight", "mlp.fc2.bias")):
            state[key] = state[key] * STRESS
    save_file(state, path, {"nystra": json.dumps(load(source).hyper)})
    return path


def lowest(get: Callable[[Any], Any], feeds: list[Any], wanted: list[Any]) -> float:
    """Return the lowest PSNR, peak 1, dB."""
    decibels = []
    for feed, expected in zip(feeds, wanted, strict=True):
        error = np.mean((np.asarray(get(feed), np.float64) - expected) ** 2)
        decibels.append(-10.0 * np.log10(max(float(error), 1e-30)))
    return float(np.min(decibels))


def session_of(model: onnx.ModelProto, folder: Path) -> Callable[[Any], Any]:
    """Return a function that runs a model without bodies on named arrays."""
    whole = onnx.ModelProto.FromString(model.SerializeToString())
    attach_bodies(whole)
    path = folder / "m.onnx"
    path.write_bytes(whole.SerializeToString())
    session = Session(path)
    return lambda feed: next(iter(session.run(feed).values()))


def first_output(backend: NetworkSession) -> Callable[[Any], Any]:
    """Return a function that runs a network on named arrays."""
    return lambda feed: backend(*feed.values())


def autocast(network: torch.nn.Module, kind: torch.dtype) -> Callable[[Any], Any]:
    """Return a function that runs a network under autocast."""

    def get(feed: Any) -> Any:
        with torch.inference_mode(), torch.autocast("cpu", kind):
            return network(*[torch.from_numpy(array) for array in feed.values()]).float().numpy()

    return get


def measure(label: str, path: Path, mechanism: str, folder: Path) -> None:
    """Print the rows of one network."""
    loaded = load(path)
    facts = loaded.facts
    if facts.task == "video":  # a clip of free sides takes minutes to trace
        facts = fix_facts(load(path, frames=CLIP[1]).facts, CLIP)
    resolved = resolve(Plan(planned(mechanism)), loaded.network)
    plain = swap(loaded.network, resolved)
    feeds: list[Any] = validation_feeds(facts)
    base = trace_network(loaded.network, facts, 20).write_mechanisms(resolved)
    weights = {tensor.name for tensor in base.graph.initializer}
    streams = {
        node.output[0]
        for node in base.graph.node
        if node.op_type == "Add" and not weights & set(node.input)
    } & find_float_tensors(base)
    single = session_of(base, folder)
    wanted = [single(feed) for feed in feeds]
    exact = [NetworkSession(plain, torch.float64)(*feed.values()) for feed in feeds]
    stream = max(measure_largest(base, streams, feeds[:1]).values())
    searching = any(site.has_near_ties for site in resolved.values())
    for precision, tensorrt in (("fp16", False), ("bf16", False), ("bf16", True)):
        name = f"{precision}-tensorrt" if tensorrt else precision
        policy = find_precision_policy(facts.architecture, precision)
        model = onnx.ModelProto.FromString(base.SerializeToString())
        try:
            done: Lowered = lower_model(model, precision, policy, feeds, tensorrt=tensorrt)
        except NystraError as error:
            print(f"| {label} | {mechanism} | {name} | refused: {error} |", flush=True)
            continue
        reference = NetworkSession(round_network(plain, name, policy))
        errors = [
            reference(*feed.values()) - output for feed, output in zip(feeds, exact, strict=True)
        ]
        allowed = max(2.0 * float(np.abs(error).max()) for error in errors)
        kind = torch.float16 if precision == "fp16" else torch.bfloat16
        half = "-"
        if precision == "fp16":
            half = f"{lowest(first_output(NetworkSession(plain, kind)), feeds, exact):.1f}"
        row = [
            label,
            mechanism,
            name,
            f"{lowest(session_of(done.rounded_copy, folder), feeds, wanted):.1f}",
            "search" if searching else f"{allowed:.1e}",
            half,
            f"{lowest(autocast(plain, kind), feeds, exact):.1f}",
            f"{done.largest:.3g}" if done.largest else "-",
            f"{stream:.3g}",
            f"{len(base.graph.node)} to {len(model.graph.node)}",
            f"{base.ByteSize() / 1e3:.0f} to {model.ByteSize() / 1e3:.0f}",
            str(len(done.reasons)),
        ]
        print("| " + " | ".join(row) + " |", flush=True)


def main() -> None:
    """Print the rows of the networks whose label starts so."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("label", nargs="?", default="", help="how labels begin; default: all rows")
    options = parser.parse_args()
    print(
        "| network | plan | precision | PSNR dB | tolerance | half() | autocast | values | stream "
        "| nodes | kB without bodies | kept |"
    )
    print("|" + " --- |" * 12)
    with tempfile.TemporaryDirectory() as name:
        for label, path, mechanism in networks(Path(name)):
            if label.startswith(options.label):
                measure(label, path, mechanism, Path(name))


if __name__ == "__main__":
    main()
