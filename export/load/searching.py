"""Searches a graph for attention at two sizes, if its sides are free, or else at its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy as np
import onnx_ir as ir

from ...core.arrays import Array
from ...core.errors import UnsupportedModelError
from ...core.ports.port import Shape
from ...models.facts import Facts
from ...runtime.machine.memory import release_free_memory
from ..execute.parts import TooLargeError
from ..execute.sized import Sized, infer_sizes
from ..rewrite.attention_search import SearchResult, find_attention
from ..rewrite.graph_network import GraphNetwork
from ..rewrite.replacement import Replacement
from ..rewrite.sources import GraphSource, inputs_of, kind_of
from ..tracing.examples import shapes_of, unit_of
from ..tracing.time_limit import SEARCH, within_limit

_Image = tuple[tuple[int, int], int]

_IMAGES: tuple[tuple[_Image, _Image], ...] = (
    (((2, 3), 2), ((3, 5), 3)),
    (((4, 6), 2), ((6, 10), 3)),
    (((8, 12), 2), ((12, 20), 3)),
)
"""Rows and columns of two images, in units, and how many of them; the second pair is for windows
that grow with the image, the third for shifted windows that are as long as those images. Free sides
are those that differ between the two images."""

_LARGE_IMAGES: tuple[tuple[_Image, _Image], ...] = (
    (((2, 3), 2), ((4, 2), 1)),
    _IMAGES[1],
)
"""The same for units of at least `LARGE_UNIT` pixels."""

_LARGER = 288
"""Least side of a third image, in pixels: windows of 8 of a map that is reduced by 32 are two."""

LARGE_UNIT = 32
"""Least side of a unit, in pixels, of which images have few."""


def search_attention(model: ir.Model, facts: Facts, first: Sized | None = None) -> SearchResult:
    """Return the attention of a graph.

    Args:
        model: The graph; it is not modified.
        facts: Its facts.
        first: The graph at a size that is taken already, or None.

    Raises:
        TraceError: It took more processor time than `limit_traces` allows.
        UnsupportedModelError: onnxruntime cannot compute it, or it needs too much memory.
    """
    release_free_memory()  # of the trace
    with within_limit(facts.inputs, SEARCH):
        return _search(model, facts, first)


def _search(model: ir.Model, facts: Facts, first: Sized | None) -> SearchResult:
    result: SearchResult | None = None
    pairs = _IMAGES if unit_of(facts) < LARGE_UNIT else _LARGE_IMAGES
    listed = []
    for pair in pairs:
        sizes = [shapes_of(facts, size, batch) for size, batch in pair]
        if sizes not in listed:  # as those of fixed sides, or the least that a network takes
            listed.append(sizes)
    for sizes in listed:
        free = sizes[0] != sizes[1]
        is_known = first is not None and sizes[0].items() <= first.shapes.items()
        try:
            one = first if is_known and first is not None else at_shapes(model, sizes[0])
            other = at_shapes(model, sizes[1]) if free else None
        except TooLargeError:
            if result is None:
                raise
            break
        result = find_attention(model, one, other, partial(_take_larger, model, facts))
        larger = result.changing if sizes is listed[0] else result.narrow
        if not larger or not free:
            break
    return result or SearchResult((), ())


def _take_larger(model: ir.Model, facts: Facts) -> Sized | None:
    units = math.ceil(_LARGER / unit_of(facts))
    try:
        shapes = shapes_of(facts, (units, units + 2), 1)
        return at_shapes(model, shapes)
    except UnsupportedModelError:
        return None


def network_of(source: GraphSource, replacements: tuple[Replacement, ...] = ()) -> GraphNetwork:
    """Return the network of a graph with the sites that were found."""
    network = GraphNetwork(source, replacements)
    network.eval().requires_grad_(requires_grad=False)
    return network


def at_shapes(model: ir.Model, shapes: Mapping[str, Shape]) -> Sized:
    """Return a graph at the shapes of its inputs, by name.

    Raises:
        UnsupportedModelError: onnxruntime cannot compute it, or it needs too much memory.
    """
    feeds: dict[str, Array] = {}
    for value in inputs_of(model):
        shape = shapes[str(value.name)]
        dtype = ir.DataType(kind_of(value))
        random = np.random.default_rng(0)
        noise = random.random(shape, np.float32)
        feeds[str(value.name)] = noise.astype(dtype.numpy())
    return infer_sizes(model, feeds)
