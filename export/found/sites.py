"""Finds the attention of a graph and puts sites in its place."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor, fx

from ..rewrite.site_modules import NotOnMap, refusal
from ..rewrite.story import FoundAttention, Level
from ..search.agreement import Agreement, agreement
from ..search.layout import Layout
from ..search.paths import unique_paths
from .checks import fault_of, recorded_values
from .grafting import TENTATIVE
from .graph import Traced, module_path, shared_copy, tidied
from .map_form import FREE, Places
from .map_sites import MapSites, NearSite
from .regions import Region, Replacement, region_of
from .rewritten import Rewritten, Swap
from .rules import Provenance, search
from .token_sites import put_tokens
from .values import Core, Value

_UNSERVED = ("channels", "neighbourhood")


@dataclass(frozen=True)
class FoundGraph:
    """A graph whose attention is replaced by sites.

    Attributes:
        rewritten: The graph.
        attentions: The attentions that were found, in the graph's order.
        changing: Whether a search with larger maps may determine layouts that depend on the size.
        longest: The longest side of a window, in tokens.
    """

    rewritten: Rewritten
    attentions: tuple[FoundAttention, ...]
    changing: bool = False
    longest: int = 0

    @functools.cached_property
    def network(self) -> fx.GraphModule:
        """The graph with its sites as submodules."""
        return self.rewritten.network()

    @property
    def regions(self) -> tuple[Region, ...]:
        """The replaced parts."""
        return tuple(swap.region for swap in self.rewritten.swaps)

    @property
    def served(self) -> int:
        """Number of attentions with a site."""
        return sum(found.level != "as trained" for found in self.attentions)


@dataclass
class _Reading:
    """One attention while it is processed: its layout and its outcome."""

    number: int
    core: Core
    layout: Layout
    agreed: Agreement
    path: str
    level: Level = "as trained"
    reason: str = ""

    @property
    def name(self) -> str:
        """Name of its site while the graph is rewritten."""
        return f"{TENTATIVE}{self.number}"


def find_in_graph(traced: Traced) -> FoundGraph:
    """Return a copy of a graph with sites in place of the attention that was found.

    Every site is compared with the attention that it replaces, at each size. If a site differs, or
    its result does not depend on its scores, the attention stays as trained, with the reason.
    """
    graph = tidied(shared_copy(traced.graph))
    graph.meta[FREE] = traced.free
    other = _searched_at_other_size(graph, traced)  # first, so that one run is in memory at a time
    run = search(graph, traced.first)
    second = _second(run, other)
    readings = _readings(run, second)
    replacements = _replaced(graph, run, readings, second)
    replaced = {item.out: item.goal for item in replacements}
    paths = {reading.name: reading.path for reading in readings}

    def regions_of(items: list[Replacement]) -> list[Region]:
        return [region_of(graph, run, item, replaced, paths) for item in items]

    regions = regions_of(replacements)
    names = {name for region in regions for name in (*region.inputs, region.output)}
    runs = recorded_values(traced, names)
    kept = []
    for item, region in zip(replacements, regions, strict=True):
        if fault := fault_of(region, runs):
            item.out.replace_all_uses_with(item.goal)
            for number in item.cores:
                readings[number].level, readings[number].reason = "as trained", fault
        else:
            kept.append(item)
    found = [FoundAttention(r.path, r.level, r.layout.text(), r.reason) for r in readings]
    found += [
        FoundAttention(module_path(passed.softmax), "as trained", "scores", passed.reason)
        for passed in run.passed
    ]
    if len(kept) < len(replacements):  # an input of a region may be the result of a removed one
        regions = regions_of(kept)
    swaps = tuple(
        Swap(replace(region, shapes=_shapes_at(region, runs)), item.out.name)
        for region, item in zip(regions, kept, strict=True)
    )
    changing = any(reading.agreed.changing for reading in readings)
    longest = max((side for reading in readings for side in reading.layout.window), default=0)
    return FoundGraph(Rewritten(graph, swaps, _data(run)), tuple(found), changing, longest)


def _shapes_at(
    region: Region, runs: list[dict[str, Tensor]]
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return the shapes of a region's inputs at each size."""
    return tuple(tuple(tuple(values[name].shape) for name in region.inputs) for values in runs)


def _data(run: Provenance) -> frozenset[str]:
    """Return the names of the nodes that depend on the input."""
    return frozenset(node.name for node in run.values if run.depends(node))


def _readings(run: Provenance, second: _Second) -> list[_Reading]:
    others = second.layouts
    paths = unique_paths([module_path(core.softmax) for core in run.cores])
    readings = []
    for number, (core, path) in enumerate(zip(run.cores, paths, strict=True)):
        layout = run.layouts[core.out]
        out = second.originals.get(core.out, core.out)
        first = run.layouts.get(out, layout)
        agreed = agreement(first, first if others is None else others.get(out))
        readings.append(_Reading(number, core, layout, agreed, path))
    return readings


@dataclass(frozen=True)
class _Second:
    """Layouts and shapes at another image size, by the nodes of the graph.

    Attributes:
        layouts: Result of an attention -> its layout; None if there is no other size.
        shapes: Node -> shape of its tensor.
        originals: Node of a part that was not run -> node of the equal part that was run.
    """

    layouts: dict[fx.Node, Layout] | None
    shapes: dict[fx.Node, tuple[int, ...]]
    originals: Mapping[fx.Node, fx.Node] = field(default_factory=dict)


@dataclass(frozen=True)
class _Other:
    """The result of a search at the other size.

    Attributes:
        layouts: Layouts of its attention, in its order.
        outs: Their results in the graph itself, or None if another graph was searched.
        shapes: Node of the graph -> shape of its tensor.
        originals: As in `_Second`.
    """

    layouts: list[Layout]
    outs: list[fx.Node] | None
    shapes: dict[fx.Node, tuple[int, ...]]
    originals: Mapping[fx.Node, fx.Node] = field(default_factory=dict)


def _searched_at_other_size(graph: fx.GraphModule, traced: Traced) -> _Other | None:
    if traced.second is None:
        return None
    own = traced.second_graph is None
    second = graph if traced.second_graph is None else tidied(shared_copy(traced.second_graph))
    run = layouts_only(second, traced.second)
    layouts = [run.layouts[core.out] for core in run.cores]
    if own:
        shapes = _shapes(run, {node: node for node in graph.graph.nodes})
        originals = run.copied.originals
        shapes |= {node: shapes[one] for node, one in originals.items() if one in shapes}
        return _Other(layouts, [core.out for core in run.cores], shapes, originals)
    of_file = {node.meta["onnx"]: node for node in graph.graph.nodes if "onnx" in node.meta}
    names = {node: of_file.get(node.meta.get("onnx")) for node in second.graph.nodes}
    shapes = _shapes(run, {node: own for node, own in names.items() if own is not None})
    return _Other(layouts, None, shapes)


def layouts_only(graph: fx.GraphModule, inputs: tuple[Tensor, ...]) -> Provenance:
    """Search a graph for layouts only, without the values of tensors if none depends on them."""
    try:
        return search(graph, inputs, forgets=True, by_shape=True)
    except Exception:  # an operator depends on values: it may raise any error without them
        return search(graph, inputs, forgets=True)


def _second(run: Provenance, other: _Other | None) -> _Second:
    if other is None:
        return _Second(None, {})
    outs = [core.out for core in run.cores] if other.outs is None else other.outs
    if len(outs) != len(other.layouts):
        return _Second({}, other.shapes)
    return _Second(dict(zip(outs, other.layouts, strict=True)), other.shapes, other.originals)


def _shapes(run: Provenance, names: dict[fx.Node, fx.Node]) -> dict[fx.Node, tuple[int, ...]]:
    """Return the shapes of tensors; ``names`` maps the nodes of the run to nodes of the graph."""
    return {
        names[node]: tuple(value.data.shape)
        for node, value in run.values.items()
        if isinstance(value, Value) and node in names
    }


def _replaced(
    graph: fx.GraphModule, run: Provenance, readings: list[_Reading], second: _Second
) -> list[Replacement]:
    """Insert sites into a graph: map sites if possible, else token sites."""
    places: dict[bytes, Places] = {}

    def lying(reading: _Reading) -> Places:
        codes = reading.core.map_codes()
        fresh = Places(run, codes, reading.layout.map, second.shapes)
        return places.setdefault(codes.numpy().tobytes(), fresh)

    replacements: list[Replacement] = []
    done: dict[fx.Node, _Reading] = {}
    near = {r.core.out: r for r in readings if not refusal(r.layout) and not r.agreed.reason}
    for reading in readings:
        if reading.core.out in done:
            continue
        item = _on_map(graph, reading, near, lying)
        item = item or _as_tokens(graph, run, reading, second.shapes)
        if item is None:
            continue
        run.values[item.out] = run.values[item.goal]
        item.goal.replace_all_uses_with(item.out)
        replacements.append(item)
        done |= {readings[number].core.out: readings[number] for number in item.cores}
        for number in item.cores:
            near.pop(readings[number].core.out, None)
    return replacements


def _on_map(
    graph: fx.GraphModule,
    reading: _Reading,
    near: dict[fx.Node, _Reading],
    lying: Callable[[_Reading], Places],
) -> Replacement | None:
    """Replace an attention by a map site, or return None and set the reason."""
    core, layout = reading.core, reading.layout
    reading.reason = refusal(layout) or reading.agreed.reason
    if reading.reason:
        return None
    others = {
        node: NearSite(other.core, other.layout, other.name)
        for node, other in near.items()
        if other is not reading and not other.agreed.whole
    }
    try:
        goal, out, with_it = MapSites(graph, lying(reading)).put(
            core, layout, reading.name, reading.agreed.whole, others
        )
    except NotOnMap as why:
        reading.reason = str(why)
        return None
    part_of = [reading, *(near[node] for node in with_it)]
    for part in part_of:
        part.level, part.reason = "map", ""
    return Replacement(tuple(part.number for part in part_of), goal, out)


def _as_tokens(
    graph: fx.GraphModule,
    run: Provenance,
    reading: _Reading,
    others: dict[fx.Node, tuple[int, ...]],
) -> Replacement | None:
    """Replace an attention by a token site; return None if it stays as trained."""
    core, layout, agreed = reading.core, reading.layout, reading.agreed
    if core.reason or layout.kind in _UNSERVED or not agreed.same_tokens:
        reading.reason = core.reason or reading.reason or agreed.reason
        return None
    try:
        goal, out = put_tokens(graph, run, core, layout, reading.name, others)
    except NotOnMap as why:
        reading.reason = f"{reading.reason}; {why}" if reading.reason else str(why)
        return None
    reading.level = "tokens"
    return Replacement((reading.number,), goal, out)
