"""Stage 3: the planned network becomes a graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from ... import __version__
from ...runtime.backends import find_backend
from ...core.json_text import stable_json
from ..attention.mechanism import Mechanism
from ..attention.site import swap
from .bodies import attach_bodies, inline_bodies
from .metadata import metadata, write_metadata
from .preprocessing import prepend
from .tidy import tidy
from .trace import trace
from .attention_memory import quadratic_bytes
from .transforms import UNCHANGED, Given, Outcome
from ..plan.stage import Planned
from ..load.stage import Prepared


@dataclass(frozen=True)
class Built:
    """Graphs with their bodies.

    Attributes:
        model: What is written; its metadata lack only what judging finds.
        outcome: What the transform did, with the twin; None where there is none.
        full: The same as the network came, to be timed against; None where nothing is timed.
    """

    model: onnx.ModelProto
    outcome: Outcome | None
    full: onnx.ModelProto | None


def build(prepared: Prepared, planned: Planned, progress: Callable[[str], None]) -> Built:
    """Trace, transform and complete the graph.

    Every graph gets its metadata here: a session runs a file as these say, and is to run the file
    that is judged and timed as it will run the one that is written.

    Raises:
        ExportError: The network cannot be traced.
        UnsupportedModelError: The transform finds nothing to change.
    """
    model, outcome = _graph(prepared, planned.resolved, progress)
    label = prepared.transform.label
    exact = () if outcome is None else outcome.exact
    _describe(model, prepared, planned, planned.resolved, label, exact)
    if outcome is not None:
        _describe(outcome.twin, prepared, planned, planned.resolved, UNCHANGED.label)
    full = None
    if is_timed(prepared, planned):
        full = _graph(prepared, planned.neutral, progress)[0]
        _describe(full, prepared, planned, planned.neutral, label)
    return Built(model, outcome, full)


def is_timed(prepared: Prepared, planned: Planned) -> bool:
    """Whether the file is timed against full attention: wanted, another, and of a CPU's types."""
    runs_here = prepared.transform.label in find_backend("ort-cpu").precisions
    return prepared.options.speed and runs_here and not planned.is_neutral


def _graph(
    prepared: Prepared,
    resolved: Mapping[str, Mechanism],
    progress: Callable[[str], None],
) -> tuple[onnx.ModelProto, Outcome | None]:
    options, facts, transform = prepared.options, prepared.traced.facts, prepared.transform
    progress("trace")
    network = swap(prepared.traced.network, resolved, "operator")
    model = trace(network, facts, options.opset)
    tidy(model, facts.inputs, facts.outputs)
    outcome = None
    if transform.apply is not None:
        progress(transform.name)
        given = Given(
            facts.architecture,
            prepared.traced_feeds,
            prepared.traced_pictures,
            facts.outputs[0],
            options.min_psnr,
        )
        outcome = transform.apply(model, given)
    for graph in [model] if outcome is None else [model, outcome.twin]:
        if options.with_preprocessing and facts.preprocessing is not None:
            prepend(graph, facts.preprocessing, prepared.loaded.facts.inputs[0])
        if options.functions != "none":
            attach_bodies(graph, options.opset)
            onnx.checker.check_model(graph)
    if options.functions == "inline":
        inline_bodies(model)
    return model, outcome


def _describe(
    model: onnx.ModelProto,
    prepared: Prepared,
    planned: Planned,
    sites: Mapping[str, Mechanism],
    precision: str,
    exact: Sequence[str] = (),
) -> None:
    """Write the metadata of a graph whose sites compute so, in place."""
    loaded = prepared.loaded
    entries = {
        "version": __version__,
        "attention": stable_json(replace(planned.plan, sites=dict(sites)).as_dict()).decode(),
        "source_sha256": loaded.checkpoint.sha256,
        "precision": precision,
    }
    if exact:
        entries["exact_layers"] = json.dumps(exact)
    quadratic = quadratic_bytes(loaded.network, loaded.facts, sites)
    if quadratic > 0:
        entries["quadratic_bytes"] = f"{quadratic:.6g}"
    write_metadata(model, metadata(loaded.facts, entries), __version__)


def serialized(model: onnx.ModelProto) -> bytes:
    """Return the bytes of a model: the same for the same content."""
    content: bytes = model.SerializeToString(deterministic=True)
    return content
