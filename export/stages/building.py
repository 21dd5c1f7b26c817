"""Stage 3: the planned network becomes a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx

from ...runtime.backends import find_backend
from ..attention.mechanism import Mechanism
from ..attention.site import swap
from ..graph.bodies import attach_bodies, inline_bodies
from ..graph.tidy import tidy
from ..graph.trace import trace
from ..transforms import Outcome
from .planning import Planned
from .preparing import Prepared


@dataclass(frozen=True)
class Built:
    """Graphs with their bodies.

    Attributes:
        model: What is written, still without metadata.
        outcome: What the transform did, with the twin; None where there is none.
        full: The same as the network came, to be timed against; None where nothing is timed.
    """

    model: onnx.ModelProto
    outcome: Outcome | None
    full: onnx.ModelProto | None


def build(prepared: Prepared, planned: Planned, progress: Callable[[str], None]) -> Built:
    """Trace, transform and complete the graph.

    Raises:
        ExportError: The network cannot be traced.
        UnsupportedModelError: The transform finds nothing to change.
    """
    model, outcome = _graph(prepared, planned.resolved, progress)
    timed = is_timed(prepared, planned)
    full = _graph(prepared, planned.neutral, progress)[0] if timed else None
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
    options, facts, transform = prepared.options, prepared.loaded.facts, prepared.transform
    progress("trace")
    network = swap(prepared.loaded.network, resolved, "operator")
    model = trace(network, facts, options.opset)
    tidy(model, facts.inputs, facts.outputs)
    outcome = None
    if transform.apply is not None:
        progress(transform.name)
        outcome = transform.apply(model, facts.architecture, prepared.feeds)
    for graph in [model] if outcome is None else [model, outcome.twin]:
        if options.functions != "none":
            attach_bodies(graph, options.opset)
            onnx.checker.check_model(graph)
    if options.functions == "inline":
        model = inline_bodies(model)
    return model, outcome


def serialized(model: onnx.ModelProto) -> bytes:
    """Return the bytes of a model: the same for the same content."""
    content: bytes = model.SerializeToString(deterministic=True)
    return content
