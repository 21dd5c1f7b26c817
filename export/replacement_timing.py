"""Replaces a network's own exact attention only where it is measured to be slower."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import onnx
import onnx_ir as ir
import torch
from torch import Tensor

from ..core.arrays import Array
from ..core.errors import ExportError
from ..core.files.scratch import scratch_folder
from ..core.text import milliseconds
from ..models.facts import Facts
from ..plugins.domain import DOMAIN
from ..runtime.ort_values import OrtValue, copy_from_ort
from ..runtime.session import Session
from ..runtime.timing.turns import median_ratio, time_in_turns
from .attention.full.parameters import Full
from .attention.mechanism import Mechanism
from .execute.names import list_names
from .execute.parts import find_inputs, make_parts, part_model
from .progress import Progress
from .rewrite.graph_network import GraphNetwork
from .rewrite.graph_writing import insert_mechanisms, plan_replacement
from .rewrite.replacement import Replacement
from .rewrite.sources import FileSource
from .tracing.bodies import attach_bodies

SIDE = 128
"""Side of the image that is timed, if the network takes any size."""

_ROUNDS = 5
"""Fewest runs of each."""

_MAX_ROUNDS = 40
"""Most runs of each while the ratio is near the limit."""

_SECONDS = 4.0
"""Seconds for them."""

_LONGEST = 12.0
"""Seconds from which on a run is repeated less often."""

_FEWEST_ROUNDS = 3
"""How often such a run is repeated."""

_CLOSE = 1.15
"""A ratio is near a limit if it is less than this factor away."""

_LONG = 2.0
"""Seconds of all replaced attention from which on the whole file is not timed beside its pieces:
runs of it would take minutes, and what attention gains there is more than any fusion."""

_GAIN = 0.9
"""Share of its time that a replaced piece may take by itself: in the whole file the gain is
smaller, since onnxruntime fuses the original nodes with their neighbors."""


@dataclass(frozen=True)
class Timed:
    """Two models to compare, with the bodies of their operators.

    Attributes:
        own: The original.
        replaced: The one with nodes of nystra.
        feeds: Inputs of both; one may need fewer.
    """

    own: onnx.ModelProto
    replaced: onnx.ModelProto
    feeds: Mapping[str, Array]


def drop_slower(
    network: GraphNetwork,
    facts: Facts,
    resolved: Mapping[str, Mechanism],
    progress: Progress,
) -> dict[str, Mechanism]:
    """Return a plan with reasons for sites that are not faster.

    Sites that are planned to be exact are measured, with the library if there is one, in
    interleaved runs: each kind of piece, then all faster pieces together, if some pieces cannot be
    traced alone, or the whole exists as a file and its attention takes less than two seconds.

    Args:
        network: The network of a graph, whose ``kept_as_is`` gets the reasons.
        facts: Its facts.
        resolved: Mechanism of every site.
        progress: Called with what is measured.
    """
    network.kept_as_is.clear()
    source = network.source.title
    exact = {path for path, mechanism in resolved.items() if isinstance(mechanism, Full)}
    kinds: dict[str, list[Replacement]] = {}  # those of one form take the same time
    for item in network.replacements:
        if exact.issuperset(item.sites):
            kinds.setdefault(item.form, []).append(item)
    alone = True
    seconds = 0.0
    for number, pieces in enumerate(kinds.values(), 1):
        progress(f"{number}/{len(kinds)} time the attention of {source}")
        try:
            timed = _piece(network, facts, resolved, pieces[0])
        except ExportError:  # it cannot be traced alone: it is timed with the whole
            alone = False
            continue
        times = _time_in_turns(timed, _GAIN)
        if reason := _reason(times, source):
            network.kept_as_is.update((path, reason) for piece in pieces for path in piece.sites)
        else:
            seconds += len(pieces) * min(times[0])
    paths: set[str] = set()
    for item in network.replacements:
        if exact.issuperset(item.sites):
            paths.update(item.sites)
    faster = paths - network.kept_as_is.keys()
    is_file = isinstance(network.source, FileSource)  # tracing all of a module takes longest
    if faster and (not alone or (is_file and seconds < _LONG)):
        progress(f"time {source} with its attention replaced")
        if reason := _reason_of_all(_replace_together(network, facts, resolved, faster), source):
            network.kept_as_is.update((path, reason) for path in sorted(faster))
    return {
        path: replace(mechanism, reason=network.kept_as_is.get(path, mechanism.reason))
        for path, mechanism in resolved.items()
    }


def _replace_together(
    network: GraphNetwork,
    facts: Facts,
    resolved: Mapping[str, Mechanism],
    paths: set[str],
) -> Timed:
    replaced = insert_mechanisms(network, resolved, {*network.paths} - paths).model
    attach_bodies(replaced)
    feeds = network.feeds(_make_images(facts))
    arrays = {name: copy_from_ort(value) for name, value in feeds.items()}
    return Timed(network.source.model, replaced, arrays)


def _piece(
    network: GraphNetwork,
    facts: Facts,
    resolved: Mapping[str, Mechanism],
    item: Replacement,
) -> Timed:
    names_read = list_names(item.inputs)
    values = network.values(names_read, _make_images(facts))
    planned = plan_replacement(network, item, resolved)
    own = _model(network.source.graph_model, item.own, item, values)
    replaced = _model(network.source.graph_model, planned.nodes, item, values)
    attach_bodies(replaced)
    entries = (*own.graph.input, *replaced.graph.input)
    names = {entry.name for entry in entries}
    feeds = {name: copy_from_ort(values[name]) for name in names}
    return Timed(own, replaced, feeds)


def _model(
    network: ir.Model,
    nodes: Sequence[ir.Node],
    item: Replacement,
    values: Mapping[str, OrtValue],
) -> onnx.ModelProto:
    output = str(item.output.name)
    (part,) = make_parts([nodes], [output])
    model = part_model(network, part, values)
    for entry in list(model.graph.input):
        value = values[entry.name]
        if entry.name in item.fixed:
            constant = onnx.numpy_helper.from_array(copy_from_ort(value), entry.name)
            model.graph.initializer.append(constant)
            model.graph.input.remove(entry)
        else:
            sized = onnx.helper.make_tensor_value_info(
                entry.name, value.element_type(), list(value.shape())
            )
            entry.CopyFrom(sized)
    if any(node.domain == DOMAIN for node in nodes):
        model.opset_import.add(domain=DOMAIN, version=1)
    return model


def _make_images(facts: Facts) -> list[Tensor]:
    size = facts.size(SIDE, SIDE)
    random = torch.Generator().manual_seed(0)
    shapes = [port.shape(size) for port in facts.inputs]
    return [torch.rand(shape, generator=random) for shape in shapes]


def _reason(seconds: Sequence[Sequence[float]], source: str) -> str:
    ratios = _ratios(seconds)
    if max(ratios) <= _GAIN:
        return ""
    return (
        f"unchanged from {source}: nystra's node took {_format_ratios(ratios)} times as long, "
        f"expected at most {_GAIN} ({milliseconds(min(seconds[1]))}, its own nodes "
        f"{milliseconds(min(seconds[0]))})"
    )


def _reason_of_all(timed: Timed, source: str) -> str:
    ratios = _ratios(_time_in_turns(timed, 1.0))
    if max(ratios) <= 1.0:
        return ""
    return (
        f"unchanged from {source}: with nystra's nodes the whole file took "
        f"{_format_ratios(ratios)} times as long, expected at most 1.0"
    )


def _format_ratios(ratios: Sequence[float]) -> str:
    texts = [f"{ratio:.2f}" for ratio in sorted(ratios)]
    return " to ".join(dict.fromkeys(texts))


def _ratios(seconds: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the ratio of the second time to the first: median over the rounds, of the shortest.

    The larger one decides: on a busy machine one of them alone is not reliable.
    """
    first, second = seconds
    ratio = median_ratio(second, first)
    return ratio, min(second) / max(min(first), 1e-12)


def _time_in_turns(timed: Timed, limit: float) -> list[list[float]]:
    """Return the times of interleaved runs of both, in seconds; most runs near the limit."""
    with scratch_folder() as folder:
        runs: dict[str, Callable[[], object]] = {}
        for number, model in enumerate((timed.own, timed.replaced)):
            path = folder / f"{number}.onnx"
            path.write_bytes(model.SerializeToString())
            feeds = {value.name: timed.feeds[value.name] for value in find_inputs(model)}
            runs[path.name] = partial(Session(path).run, feeds)
            runs[path.name]()
        begun = time.perf_counter()

        def active(times: Mapping[str, Sequence[float]]) -> Sequence[str]:
            spent = time.perf_counter() - begun
            enough = _enough([*times.values()], spent, limit)
            if enough:
                return []
            return [*runs]

        return [*time_in_turns(runs, active).values()]


def _enough(times: Sequence[Sequence[float]], seconds: float, limit: float) -> bool:
    rounds = len(times[0])
    if rounds < _ROUNDS:
        return rounds >= _FEWEST_ROUNDS and seconds > _LONGEST
    if rounds >= _MAX_ROUNDS or seconds > _SECONDS:
        return True
    ratios = _ratios(times)
    return max(ratios) < limit / _CLOSE or min(ratios) > limit * _CLOSE
