"""Finds the attention of an ONNX graph and puts sites in its place: the search from top to bottom.

1. The graph is taken at one size, or at two if its sides are free: its shapes, and the values that
   depend on no pixel.
2. Places and scores are followed from the inputs through all nodes; products, softmaxes and
   products of these are attention.
3. The places of its tokens tell how each attention is arranged; both sizes have to agree.
4. New nodes are written for each: a site of windows on its map, or else a site of tokens.
5. Each is computed from noise beside the nodes that it replaces; what differs is left alone. Of
   layers that differ in their weights only, the first stands for all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, cast

import onnx_ir as ir
from torch import Tensor

from ...core.errors import UnsupportedModelError
from ...core.ports.port import Shape
from ...core.text import first_named
from ..execute.names import list_names
from ..execute.parts import PartRunner, TooLargeError
from ..execute.sites import select_nodes
from ..execute.sized import Sized, infer_sizes
from ..search.agreement import Agreement, agreement
from ..search.by_size import find_varying, grow_evenly, longer_sizes
from ..search.layout import Layout
from ..search.paths import module_path, unique_paths
from ..search.provenance import Provenance
from ..search.values import Attention
from .comparison import compute_fingerprint, find_mismatch
from .map_places import Places
from .replacement import Replacement, collect_replacement
from .site_builder import SiteBuilder
from .site_modules import NotOnMap, find_refusal
from .sources import make_zero_inputs
from .tokens import put_tokens
from .windows import Sites, WriteSite, put_on_map, write_site

Level = Literal["map", "tokens", "as trained"]
_UNSERVED = ("channels", "neighbourhood")
_FEWEST_SIZES = 3
_MIXED = "its inputs and outputs have several types in the file"


@dataclass(frozen=True)
class FoundAttention:
    """One softmax attention of a graph, supported or not.

    Attributes:
        path: Path of its site, or of its softmax if it stays as trained.
        level: ``map`` or ``tokens`` for a site, else ``as trained``.
        layout: The layout of its tokens, as one line of text.
        reason: Why it is not a site of a map, or "".
    """

    path: str
    level: Level
    layout: str
    reason: str


@dataclass(frozen=True)
class SearchResult:
    """What was found in a graph.

    Attributes:
        replacements: The replaced parts, in the graph's order.
        attentions: The attentions, in the graph's order.
        changing: Whether a search with larger maps may determine layouts that depend on the size.
        narrow: Whether maps are too small to tell the mask of shifted windows.
    """

    replacements: tuple[Replacement, ...]
    attentions: tuple[FoundAttention, ...]
    changing: bool = False
    narrow: bool = False


@dataclass
class _Reading:
    """One attention while it is processed: its layout and its outcome."""

    number: int
    core: Attention
    layout: Layout
    agreed: Agreement
    path: str
    level: Level = "as trained"
    reason: str = ""


def find_attention(
    model: ir.Model,
    sized: Sized,
    other: Sized | None,
    take_larger: Callable[[], Sized | None] = lambda: None,
) -> SearchResult:
    """Return the attention of a graph, with what replaces it.

    Args:
        model: The graph; it is not modified.
        sized: The graph at one size.
        other: The graph at another size; None if it has one size only.
        take_larger: Returns it at a larger size, if it can be taken there. Sites are compared at
            that size too if an attention has one window at both others.
    """
    second = None
    if other is not None:
        second = Provenance(other).run(model.graph).layouts
    varying = frozenset[str]()
    if other is not None:
        varying = find_varying(model.graph, sized, other)
    run = Provenance(sized, varying).run(model.graph)
    readings = _read_layouts(run, second)
    if other is not None:
        _read_at_longer_sizes(model, sized, other, readings)
    larger = take_larger() if any(reading.agreed.one_window for reading in readings) else None
    sizes = [graph for graph in (sized, other, larger) if graph is not None]
    checks = _Checks(PartRunner(model), sizes)
    replaced = _write_replacements(model.graph, run, readings, other)
    unmatched = run.unmatched
    del run  # its places take as much memory as a check
    sized.release()
    passed = [item for item in replaced if checks.pass_for(item, readings)]
    attentions = []
    for reading in readings:
        text = reading.layout.text()
        attentions.append(FoundAttention(reading.path, reading.level, text, reading.reason))
    attentions += [
        FoundAttention(module_path(one.softmax), "as trained", "scores", one.reason)
        for one in unmatched
    ]
    changing = any(reading.agreed.changing for reading in readings)
    layouts = [reading.layout for reading in readings]
    narrow = any(layout.is_narrow and layout.masked == "other" for layout in layouts)
    return SearchResult(tuple(passed), tuple(attentions), changing, narrow)


def _read_layouts(run: Provenance, second: dict[ir.Value, Layout] | None) -> list[_Reading]:
    paths_of_nodes = [module_path(core.softmax) for core in run.cores]
    paths = unique_paths(paths_of_nodes)
    readings = []
    named_cores = zip(run.cores, paths, strict=True)
    for number, (core, path) in enumerate(named_cores):
        layout = run.layouts[core.out]
        other_layout = layout if second is None else second.get(core.out)
        agreed = agreement(layout, other_layout)
        readings.append(_Reading(number, core, layout, agreed, path))
    return readings


def _read_at_longer_sizes(
    model: ir.Model,
    sized: Sized,
    other: Sized,
    readings: Sequence[_Reading],
) -> None:
    """Set the reason of attention whose masks are not those of its windows for longer images."""
    on_map = [r for r in readings if r.core.by_size and not find_refusal(r.layout)]
    terms = {value for reading in on_map for value in reading.core.by_size}
    uneven: set[ir.Value] = set()
    for sizes in longer_sizes(model.graph, sized, other) if terms else ():
        first, padded, *longer = [_compute_constants_at(model, shapes, terms) for shapes in sizes]
        computed = [first or {}]
        computed += [constants for constants in (padded or None, *longer) if constants is not None]
        uneven |= {term for term in terms if not _grows_evenly(term, computed)}
    for reading in on_map:
        if uneven.intersection(reading.core.by_size):
            reading.layout.reason = "its biases or masks depend on the size of the image"


def _grows_evenly(term: ir.Value, computed: Sequence[Mapping[ir.Value, Tensor]]) -> bool:
    if len(computed) < _FEWEST_SIZES:
        return False
    if any(term not in constants for constants in computed):
        return False
    first, *longer = [constants[term] for constants in computed]
    return all(grow_evenly([first, *pair]) for pair in pairwise(longer))


def _compute_constants_at(
    model: ir.Model,
    shapes: Mapping[str, Shape],
    terms: Collection[ir.Value],
) -> dict[ir.Value, Tensor] | None:
    """Return values without pixels at a size; none if the graph cannot be taken at it.

    None instead of a dictionary if they need too much memory.
    """
    view = ir.GraphView(
        model.graph.inputs,
        sorted(terms, key=lambda term: str(term.name)),
        nodes=select_nodes(list(model.graph), {str(term.name) for term in terms}),
        initializers=list(model.graph.initializers.values()),
        opset_imports=model.graph.opset_imports,
    )
    part = ir.Model(
        cast(ir.Graph, view),
        ir_version=model.ir_version,
        functions=list(model.functions.values()),
    )
    try:
        sized = infer_sizes(part, make_zero_inputs(model, shapes))
        return {term: sized.constant(term) for term in terms}
    except TooLargeError:
        return None
    except UnsupportedModelError:
        return {}


class _Checks:
    """Compares replacements with what they replace; those of equal layers only once."""

    def __init__(self, runner: PartRunner, sizes: Sequence[Sized]) -> None:
        self.runner = runner
        self.sizes = sizes
        self._checked: dict[bytes, tuple[Replacement, str]] = {}
        self._forms: set[str] = set()

    def pass_for(self, item: Replacement, readings: Sequence[_Reading]) -> bool:
        """Return whether a replacement may be kept; its readings get the reason if not."""
        first = self.sizes[0]
        names = list_names(item.inputs)
        types = {first.types[name] for name in names if name in first.data}
        floating = {kind for kind in types if ir.DataType(kind).is_floating_point()}
        floating.add(item.type)
        fault = _MIXED if len(floating) > 1 else self._fault(item)
        if fault:
            for reading in readings:
                if reading.path in item.sites:
                    reading.level = "as trained"
                    reading.reason = fault
        return not fault

    def _fault(self, item: Replacement) -> str:
        key = compute_fingerprint(item, self.sizes)
        if key not in self._checked:
            alone = item.form not in self._forms
            fault = find_mismatch(item, self.runner, self.sizes, alone=alone)
            if not fault:
                self._forms.add(item.form)
            self._checked[key] = item, fault
        equal, fault = self._checked[key]
        pairs = zip(item.sites, equal.site_shapes.values(), strict=False)
        item.site_shapes.update(pairs)
        return fault


def _write_replacements(
    graph: ir.Graph,
    run: Provenance,
    readings: Sequence[_Reading],
    other: Sized | None,
) -> list[Replacement]:
    """Write nodes for attention: sites of maps if possible, else sites of tokens."""
    places: dict[bytes, Places] = {}
    sites: Sites = {}

    def positions_of(reading: _Reading) -> Places:
        codes = reading.core.map_codes()
        fresh = Places(run, codes, reading.layout.map)
        return places.setdefault(codes.numpy().tobytes(), fresh)

    replacements: list[Replacement] = []
    done: set[ir.Value] = set()
    candidates: dict[ir.Value, _Reading] = {}
    for reading in readings:
        if not find_refusal(reading.layout) and not reading.agreed.reason:
            candidates[reading.core.out] = reading
    for reading in readings:
        if reading.core.out in done:
            continue
        builder = SiteBuilder(graph, run.sized, other, f"nystra_{reading.number}/")
        item = _replace_on_map(builder, reading, candidates, positions_of, sites)
        item = item or _replace_as_tokens(builder, reading, positions_of)
        if item is None:
            continue
        replacements.append(item)
        for part in readings:
            if part.path in item.sites:
                done.add(part.core.out)
                candidates.pop(part.core.out, None)
    return replacements


def _replace_on_map(
    builder: SiteBuilder,
    reading: _Reading,
    candidates: Mapping[ir.Value, _Reading],
    positions_of: Callable[[_Reading], Places],
    sites: Sites,
) -> Replacement | None:
    """Replace an attention by a map site, or return None and set the reason."""
    reading.reason = find_refusal(reading.layout) or reading.agreed.reason
    if reading.reason:
        return None

    def writer_of(of: _Reading) -> WriteSite:
        is_global = of.agreed.is_global
        return lambda writer: write_site(
            writer, of.core, of.layout, of.path, sites, is_global=is_global
        )

    others: dict[ir.Value, WriteSite] = {}
    for result, other in candidates.items():
        if other is not reading and not other.agreed.is_global:
            others[result] = writer_of(other)
    places = positions_of(reading)
    try:
        writer = writer_of(reading)
        target, out, with_it = put_on_map(builder, places, reading.core, writer, others)
    except NotOnMap as why:
        reading.reason = str(why)
        return None
    for part in [reading, *(candidates[result] for result in with_it)]:
        part.level = "map"
        part.reason = ""
    return collect_replacement(builder, sites, target, out)


def _replace_as_tokens(
    builder: SiteBuilder, reading: _Reading, positions_of: Callable[[_Reading], Places]
) -> Replacement | None:
    """Replace an attention by a token site; return None if it stays as trained."""
    core = reading.core
    layout = reading.layout
    agreed = reading.agreed
    if core.reason or layout.kind in _UNSERVED or not agreed.exists:
        reading.reason = core.reason or reading.reason or agreed.reason
        return None
    try:
        places = positions_of(reading)
        site, out = put_tokens(builder, places, core, layout, agreed, reading.path)
    except NotOnMap as why:
        reading.reason = f"{reading.reason}; {why}" if reading.reason else str(why)
        return None
    reading.level = "tokens"
    return collect_replacement(builder, {reading.path: site}, core.out, out)


def describe_unreplaced(attentions: Sequence[FoundAttention]) -> list[str]:
    """Return one sentence per reason why attention is not a site of a map."""
    groups: dict[tuple[str, str], list[str]] = {}
    for attention in attentions:
        if attention.reason:
            group = groups.setdefault((attention.level, attention.reason), [])
            group.append(attention.path)
    sentences = []
    for (level, reason), paths in groups.items():
        how = "stays as trained"
        if level == "tokens":
            how = "is served as a list of tokens"
        sentences.append(f"attention {how}: {reason} ({first_named(paths)})")
    return sentences
