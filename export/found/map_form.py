"""Writes tensors as maps, the form that sites of windows take.

The form of a tensor is a map (B, H, W, C) and, for each element of the tensor, its channel there.
Operators that only move elements need no node: they act on the channel numbers as on data. All
conditions are comparisons of integers over all elements. If one fails, `NotOnMap` says why.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from ..rewrite.site_modules import NotOnMap
from ..search.places import decode, map_axes, numbers_on, unshared
from .rules import Provenance
from .values import Core, Value

CONSTANT = "found_constant_"
"""Prefix of the names of the constants that are added to a graph."""


_RUN = 8
"""Mean number of adjacent channels from which on slices are faster than single channels."""

FREE = "free"
"""Key in the ``meta`` of a graph: whether a graph of a fixed size stands for every size."""


@dataclass(frozen=True)
class MapForm:
    """A tensor as a map.

    Attributes:
        node: Node of the map (B, H, W, count).
        channel: Channel of each element of the tensor, in the tensor's shape.
        count: Number of channels.
        factor: Factor that is not multiplied into the map yet. For queries and keys it becomes part
            of the scale of the scores and needs no operator.
    """

    node: fx.Node
    channel: Tensor
    count: int
    factor: float = 1.0


@dataclass
class Places:
    """The positions of a graph's tensors on one map, shared by all its sites.

    Attributes:
        run: The search that has run on the graph.
        codes: Sorted places of the map.
        map: Batch size, rows and columns.
        shapes: Node -> shape of its tensor at another image size.
        axes: Node -> its axes that are axes of the map, or None; only for nodes requested so far.
        unpadded: Codes of a smaller map that is padded to this one -> positions on it.
    """

    run: Provenance
    codes: Tensor
    map: tuple[int, ...]
    shapes: Mapping[fx.Node, tuple[int, ...]] = field(default_factory=dict)
    axes: dict[fx.Node, list[int] | None] = field(default_factory=dict)
    unpadded: dict[bytes, Places] = field(default_factory=dict)

    def number(self, places: Tensor) -> Tensor:
        """Return the number of each place in the map, in the places' shape; -1 outside the map."""
        return numbers_on(self.codes, places)

    def before(self, places: Tensor) -> Places | None:
        """Return the positions on the smaller map of these places; None if they are no map."""
        codes = unshared(places).unique()
        key = codes.numpy().tobytes()
        if key not in self.unpadded:
            batch, _, *sides = (part.unique().numel() for part in decode(codes))
            self.unpadded[key] = Places(self.run, codes, (batch, *sides), self.shapes)
        smaller = self.unpadded[key]
        return smaller if math.prod(smaller.map) == len(codes) and codes[0] >= 0 else None

    def axes_of(self, node: fx.Node) -> list[int] | None:
        """Return the map's axes in a tensor that has the map's layout; None for other tensors."""
        if node not in self.axes:
            self.axes[node] = self._axes_of(node)
        return self.axes[node]

    def _axes_of(self, node: fx.Node) -> list[int] | None:
        value = self.run.values.get(node)
        if not isinstance(value, Value) or value.place is None or not node.meta.get("cut", True):
            return None
        return map_axes(self.codes, value.place)


class MapWriter:
    """Writes tensors of one site as maps, into the graph of the site."""

    def __init__(
        self,
        graph: fx.GraphModule,
        places: Places,
        core: Core,
        source: tuple[fx.Node, tuple[int, int]] | None = None,
    ) -> None:
        """Take a graph, which gets new nodes at its insertion point.

        The sides are read from the axes of rows and columns of the ``source``, if there is one.
        ``near`` maps the result of other attention to a function that writes it. It is needed if an
        attention uses the result of another one in the same window, with no map between them.
        """
        self.graph, self.places, self.core = graph, places, core
        self.forms: dict[fx.Node, MapForm] = {}
        self.near: dict[fx.Node, Callable[[MapWriter], MapForm]] = {}
        self._before: dict[fx.Node, MapWriter] = {}
        self._sides: tuple[Any, ...] | None = None
        self._source = source

    def before(self, node: fx.Node, axes: tuple[int, int]) -> MapWriter | None:
        """Return the writer for the map of a tensor that is padded to this map, or None.

        Args:
            node: The tensor.
            axes: Its axes of the rows and of the columns.
        """
        if node not in self._before:
            places = self.places.before(self.place(node))
            if places is None:
                return None
            self._before[node] = MapWriter(self.graph, places, self.core, (node, axes))
        return self._before[node]

    def value(self, node: fx.Node) -> Any:
        """Return the value of a node."""
        return self.places.run.values[node]

    def tensor(self, node: fx.Node) -> Value:
        """Return the value of a node, or the first of several results.

        Raises:
            NotOnMap: It is no tensor.
        """
        value = self.value(node)
        first = value[0] if isinstance(value, (list, tuple)) else value
        if not isinstance(first, Value):
            raise NotOnMap(f"{node.name} is no tensor")
        return first

    def place(self, node: fx.Node) -> Tensor:
        """Return the places of a node that depends on the input, in the shape of its tensor.

        Raises:
            NotOnMap: It does not depend on the input, or is no tensor.
        """
        place = self.tensor(node).place
        if place is None:
            raise NotOnMap(f"{node.name} does not depend on the input")
        return place

    def call(self, function: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Add a node."""
        return self.graph.graph.call_function(function, args, kwargs)

    def constant(self, value: Tensor) -> fx.Node:
        """Add a constant."""
        return add_constant(self.graph, value)

    @property
    def sides(self) -> tuple[Any, ...]:
        """Batch size, rows and columns of the map: numbers, or nodes with the sizes of a tensor."""
        if self._sides is None:
            self._sides = self._requested() if is_symbolic(self.graph) else self.places.map
        return self._sides

    def _requested(self) -> tuple[Any, ...]:
        """Read the sizes of the nearest tensor before the site; an earlier one may lack padding."""
        if self._source is not None:
            source, sides = self._source
            return -1, *(self.call(torch.ops.aten.sym_size.int, source, side) for side in sides)
        wanted = [size for size in self.places.map if size > 1]
        nodes = list(self.graph.graph.nodes)
        for node in reversed(nodes[: nodes.index(self.core.out)]):
            axes = self.places.axes_of(node)
            if axes is None:
                continue
            shape = self.tensor(node).data.shape
            if [shape[axis] for axis in axes] == wanted:
                sizes = iter([self.call(torch.ops.aten.sym_size.int, node, a) for a in axes])
                return tuple(next(sizes) if size > 1 else 1 for size in self.places.map)
        raise NotOnMap("rows and columns of the map are axes of no tensor before it")

    def split(self, sizes: Sequence[int], others: Sequence[int]) -> list[Any]:
        """Return the axis sizes of a map that is split into pieces; free sizes are nodes or -1.

        Args:
            sizes: Axis sizes at the image size of the search.
            others: Axis sizes at another image size. Sizes equal at both belong to the windows.

        Raises:
            NotOnMap: The free sizes do not follow from the sides of the map.
        """
        if not is_symbolic(self.graph):
            return list(sizes)
        left = [
            (number, side)
            for number, side in zip(self.places.map, self.sides, strict=True)
            if number > 1
        ]
        todo, out = list(zip(sizes, others, strict=True)), []
        while todo:
            number, side = left.pop(0)
            size, other = todo.pop(0)
            if size == number:
                out.append(side)
            elif size < number:
                pieces = [(size, other)]
                while todo and math.prod(piece for piece, _ in pieces) < number:
                    pieces.append(todo.pop(0))
                out += self._pieces(side, pieces)
            else:
                while number < size and left:
                    number *= left.pop(0)[0]
                out.append(-1)
        if out.count(-1) > 1:
            raise NotOnMap("several axes of its result are made of several sides of the map")
        return out

    def _pieces(self, side: Any, pieces: list[tuple[int, int]]) -> list[Any]:
        """Return the sizes of the axes that one side is split into; one of them is free.

        If the side is the same at both image sizes, the first axis is the free one.
        """
        changing = [at for at, (size, other) in enumerate(pieces) if size != other] or [0]
        if len(changing) > 1:
            raise NotOnMap("a side of its result is cut into several free axes")
        sizes: list[Any] = [size for size, _ in pieces]
        fixed = [size for at, size in enumerate(sizes) if at != changing[0]]
        sizes[changing[0]] = self.call(operator.floordiv, side, math.prod(fixed))
        return sizes

    def plain(self, node: fx.Node, axes: list[int]) -> MapForm:
        """Return the form of a tensor with the map's layout; ``axes`` are its axes of the map."""
        shape = self.tensor(node).data.shape
        others = [axis for axis in range(len(shape)) if axis not in axes]
        count = math.prod(shape[axis] for axis in others)
        order = [*axes, *others]
        moved = self.call(torch.permute, node, tuple(order)) if order != sorted(order) else node
        flat = self.call(torch.reshape, moved, (*self.sides, count))
        own = [shape[axis] if axis in others else 1 for axis in range(len(shape))]
        return MapForm(flat, torch.arange(count).reshape(own).expand(shape), count)

    def placed(self, node: fx.Node, form: MapForm) -> fx.Node:
        """Return a node's tensor, made from its form.

        Raises:
            NotOnMap: The node does not have the map's layout.
        """
        axes = self.places.axes_of(node)
        if axes is None:
            raise NotOnMap(f"{node.name} does not lie as the map does")
        shape = self.tensor(node).data.shape
        others = [axis for axis in range(len(shape)) if axis not in axes]
        count = math.prod(shape[axis] for axis in others)
        own = [shape[axis] if axis in others else 1 for axis in range(len(shape))]
        wanted = torch.arange(count).reshape(own).expand(shape)
        index = self.single(self.place(node), wanted, form.channel.expand(shape), count)
        out = self.picked(form.node, index, form.count)
        known = self.places.shapes.get(node, shape)
        sizes = self.split([shape[axis] for axis in axes], [known[axis] for axis in axes])
        out = self.call(torch.reshape, out, (*sizes, *(shape[axis] for axis in others)))
        order = [*axes, *others]
        if order == sorted(order):
            return out
        return self.call(torch.permute, out, tuple(order.index(axis) for axis in range(len(order))))

    def single(self, place: Tensor, channel: Tensor, what: Tensor, count: int) -> Tensor:
        """Return the value of each channel, (count,).

        Args:
            place: Place of each element.
            channel: Channel of each element.
            what: Value of each element.
            count: Number of channels.

        Raises:
            NotOnMap: A channel has different values at different positions of the map.
        """
        inside = self.places.number(place) >= 0
        channels, whats = channel, what.expand(channel.shape)
        if not bool(inside.all()):
            channels, whats = channels[inside], whats[inside]
        out = torch.zeros(count, dtype=what.dtype)
        out[channels] = whats
        if not torch.equal(out[channels], whats):
            raise NotOnMap("what is done to a channel differs between places")
        return out

    def compact(self, form: MapForm, place: Tensor) -> MapForm:
        """Return the form with only the channels of elements whose place is on the map."""
        used = form.channel[self.places.number(place) >= 0].unique()
        if len(used) == form.count:
            return form
        rank = torch.zeros(form.count, dtype=torch.int64)
        rank[used] = torch.arange(len(used))
        node = self.picked(form.node, used, form.count)
        return MapForm(node, rank[form.channel], len(used))

    def picked(self, node: fx.Node, index: Tensor, count: int) -> fx.Node:
        """Return the channels, of ``count``, that an index selects from a map."""
        if len(index) == count and torch.equal(index, torch.arange(count)):
            return node
        runs = torch.tensor_split(index, (index.diff() != 1).nonzero().flatten() + 1)
        if (len(runs) > 1 and len(index) < _RUN * len(runs)) or not len(index):
            return self.call(torch.index_select, node, -1, self.constant(index))
        parts = [self.call(torch.narrow, node, -1, int(run[0]), len(run)) for run in runs]
        return parts[0] if len(parts) == 1 else self.call(torch.cat, parts, -1)


def is_symbolic(graph: fx.GraphModule) -> bool:
    """Return whether a graph has free sizes: it reads some, or represents graphs of every size."""
    return bool(graph.meta.get(FREE)) or any(
        node.target is torch.ops.aten.sym_size.int for node in graph.graph.nodes
    )


def add_constant(graph: fx.GraphModule, value: Tensor) -> fx.Node:
    """Add a constant at the insertion point of a graph, and return its node."""
    number = 0
    while hasattr(graph, f"{CONSTANT}{number}"):
        number += 1
    graph.register_buffer(f"{CONSTANT}{number}", value.detach().contiguous())
    return graph.graph.get_attr(f"{CONSTANT}{number}")


@contextmanager
def tentative(graph: fx.Graph, before: fx.Node) -> Iterator[None]:
    """Insert nodes before a node; if `NotOnMap` is raised, remove them again."""
    kept = set(graph.nodes)
    try:
        with graph.inserting_before(before):
            yield
    except NotOnMap:
        for node in reversed([node for node in graph.nodes if node not in kept]):
            graph.erase_node(node)
        raise
