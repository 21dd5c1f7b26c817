"""Writes tensors as maps, the form that sites of windows take.

The form of a tensor is a map (B, H, W, C) and, for each element of the tensor, its channel there.
Operators that only move elements need no node: they act on the channel numbers as on data. All
conditions are comparisons of integers over all elements. If one fails, `NotOnMap` says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir
import torch
from torch import Tensor

from ..search.movement import along
from ..search.places import unshare
from ..search.values import Attention, Value
from .map_places import Places
from .map_sides import find_sides
from .site_builder import Side, SiteBuilder
from .site_modules import NotOnMap

_RUN = 8
"""Mean number of adjacent channels from which on slices are faster than single channels."""


@dataclass(frozen=True)
class MapForm:
    """A tensor as a map.

    Attributes:
        node: The map (B, H, W, count).
        channel: Channel of each element of the tensor, in the tensor's shape.
        count: Number of channels.
        factor: Factor that is not multiplied into the map yet. For queries and keys it becomes part
            of the scale of the scores and needs no operator.
    """

    node: ir.Value
    channel: Tensor
    count: int
    factor: float = 1.0


class MapWriter:
    """Writes tensors of one site as maps."""

    def __init__(
        self,
        builder: SiteBuilder,
        places: Places,
        core: Attention,
        form_of: Callable[[MapWriter, ir.Value], MapForm],
        source: tuple[ir.Value, tuple[int, int]] | None = None,
    ) -> None:
        """Take what collects the new nodes, and the function that writes a tensor as a map.

        The sides are read from the axes of rows and columns of the ``source``, if there is one.
        ``other_sites`` maps the result of other attention to a function that writes it. It is
        needed if an attention uses the result of another one in the same window, with no map
        between them.
        """
        self.builder = builder
        self.places = places
        self.core = core
        self._form_of = form_of
        self.forms: dict[ir.Value, MapForm] = {}
        self.other_sites: dict[ir.Value, Callable[[MapWriter], MapForm]] = {}
        self._before: dict[ir.Value, MapWriter] = {}
        self._sides: tuple[Side, ...] | None = None
        self._source = source

    def before(self, ir_value: ir.Value, axes: tuple[int, int]) -> MapWriter | None:
        """Return the writer for the map of a tensor that is padded to this map, or None.

        Args:
            ir_value: The tensor.
            axes: Its axes of the rows and of the columns.
        """
        if ir_value not in self._before:
            places = self.places.before(self.place(ir_value))
            if places is None:
                return None
            self._before[ir_value] = MapWriter(
                self.builder, places, self.core, self._form_of, (ir_value, axes)
            )
        return self._before[ir_value]

    def write(self, ir_value: ir.Value) -> MapForm:
        """Return the form of a tensor.

        Raises:
            NotOnMap: The tensor cannot be written as a map.
        """
        if ir_value not in self.forms:
            write = self.other_sites.pop(ir_value, None)
            if write is None:
                self.forms[ir_value] = self._form_of(self, ir_value)
            else:
                self.forms[ir_value] = write(self)
        return self.forms[ir_value]

    def write_multiplied(self, ir_value: ir.Value) -> MapForm:
        """Return the form of a tensor with its factor multiplied into the map.

        Raises:
            NotOnMap: The tensor cannot be written as a map.
        """
        form = self.write(ir_value)
        if form.factor != 1.0:
            number = torch.tensor(form.factor)
            factor = self.builder.constant(number, ir_value)
            product = self.builder.op("Mul", form.node, factor)
            form = self.forms[ir_value] = MapForm(product, form.channel, form.count)
        return form

    def data_of(self, node: ir.Node) -> list[ir.Value]:
        """Return the inputs of a node that depend on pixels."""
        data = []
        for ir_value in node.inputs:
            value = None if ir_value is None else self.places.run.value(ir_value)
            if ir_value is not None and value is not None and value.place is not None:
                data.append(ir_value)
        return data

    def constants_of(self, node: ir.Node) -> list[Tensor | None]:
        """Return the inputs of a node that depend on no pixel; None for the others."""
        data = self.data_of(node)
        constant = self.builder.sized.constant
        return [
            None if ir_value is None or ir_value in data else constant(ir_value)
            for ir_value in node.inputs
        ]

    def value(self, ir_value: ir.Value) -> Value:
        """Return the value of a tensor.

        Raises:
            NotOnMap: It was not reached by the search.
        """
        value = self.places.run.value(ir_value)
        if value is None:
            raise NotOnMap(f"{ir_value.name} is no tensor")
        return value

    def place(self, ir_value: ir.Value) -> Tensor:
        """Return the places of a tensor that depends on the input.

        Raises:
            NotOnMap: It does not depend on the input, or is no tensor.
        """
        place = self.value(ir_value).place
        if place is None:
            raise NotOnMap(f"{ir_value.name} does not depend on the input")
        return place

    @property
    def sides(self) -> tuple[Side, ...]:
        """Batch size, rows and columns of the map: numbers, or lengths of a tensor."""
        if self._sides is None:
            self._sides = self._find_sides() if self.builder.free else self.places.map
        return self._sides

    def _find_sides(self) -> tuple[Side, ...]:
        if self._source is not None:
            source, own = self._source
            return -1, *(self.builder.free_side(source, axis) for axis in own)
        return find_sides(self)

    def split(self, sizes: Sequence[int], others: Sequence[int]) -> list[Side]:
        """Return the axis sizes of a map that is split into pieces; free sizes are values or -1.

        Args:
            sizes: Axis sizes at the image size of the search.
            others: Axis sizes at another image size. Sizes equal at both belong to the windows.

        Raises:
            NotOnMap: The free sizes do not follow from the sides of the map.
        """
        if not self.builder.free:
            return list(sizes)
        remaining = [
            (number, side)
            for number, side in zip(self.places.map, self.sides, strict=True)
            if number > 1
        ]
        todo = list(zip(sizes, others, strict=True))
        out = list[Side]()
        while todo:
            number, side = remaining.pop(0)
            size, other = todo.pop(0)
            if size == number:
                out.append(side)
            elif size < number:
                pieces = [(size, other)]
                while todo and math.prod(piece for piece, _ in pieces) < number:
                    pieces.append(todo.pop(0))
                out += self._pieces(side, pieces)
            else:
                merged = [side]
                while number < size and remaining:
                    number *= remaining[0][0]
                    merged.append(remaining.pop(0)[1])
                out.append(self.builder.multiply(merged) if _is_open(out) else -1)
        if sum(_is_open([side]) for side in out) > 1:
            raise NotOnMap("several axes of its result are made of several sides of the map")
        return out

    def _pieces(self, side: Side, pieces: list[tuple[int, int]]) -> list[Side]:
        """Return the sizes of the axes that one side is split into; one of them is free.

        If the side is the same at both image sizes, the first axis is the free one.
        """
        sides_differ = [size != other for size, other in pieces]
        changing = [at for at, differs in enumerate(sides_differ) if differs] or [0]
        if len(changing) > 1:
            raise NotOnMap("a side of its result is cut into several free axes")
        sizes: list[Side] = [size for size, _ in pieces]
        fixed = [size for size, _ in pieces]
        del fixed[changing[0]]
        rest = math.prod(fixed)
        sizes[changing[0]] = self.builder.divide(side, rest)
        return sizes

    def _order(self, ir_value: ir.Value, axes: list[int]) -> tuple[list[int], list[int], bool]:
        """Return the axes of a tensor in the order of the map, its channels, and whether it is one.

        Axes of one element stay in front, so that an image alone is not moved.
        """
        shape = self.value(ir_value).shape
        others = self.builder.others(ir_value)
        rest = [axis for axis in range(len(shape)) if axis not in axes]
        ones = [axis for axis in rest if shape[axis] == others[axis] == 1]
        rest = [axis for axis in rest if axis not in ones]
        order = [*ones, *axes, *rest]
        first = [shape[axis] for axis in order[:3]]
        one_channel_axis = len(order) == 4 and len(rest) == 1
        is_map = one_channel_axis and first == list(self.places.map)
        return order, rest, is_map

    def read_map(self, ir_value: ir.Value, axes: list[int]) -> MapForm:
        """Return the form of a tensor with the map's layout; ``axes`` are its axes of the map."""
        shape = self.value(ir_value).shape
        order, others, is_map = self._order(ir_value, axes)
        count = math.prod(shape[axis] for axis in others)
        node = self.builder.transpose(ir_value, order)
        if not is_map:
            node = self.builder.reshape(node, (*self.sides, count))
        return MapForm(node, self._numbers(shape, others), count)

    def _numbers(self, shape: Sequence[int], others: list[int]) -> Tensor:
        lengths = [length if axis in others else 1 for axis, length in enumerate(shape)]
        numbers = torch.arange(math.prod(lengths)).reshape(lengths)
        return numbers.expand(tuple(shape))

    def write_back(self, ir_value: ir.Value, form: MapForm) -> ir.Value:
        """Return a tensor of the graph, made from its form.

        Raises:
            NotOnMap: The tensor does not have the map's layout.
        """
        axes = self.places.axes_of(ir_value)
        if axes is None:
            raise NotOnMap(f"{ir_value.name} does not lie as the map does")
        shape = self.value(ir_value).shape
        order, others, is_map = self._order(ir_value, axes)
        count = math.prod(shape[axis] for axis in others)
        numbers = self._numbers(shape, others)
        channel = form.channel.expand(shape)
        place = self.place(ir_value)
        index = self.single(place, numbers, channel, count)
        out = self.pick(form.node, index, form.count)
        if not is_map:
            other_shape = self.builder.others(ir_value)
            map_shape = [shape[axis] for axis in axes]
            other_map = [other_shape[axis] for axis in axes]
            sizes = self.split(map_shape, other_map)
            placed = len(axes) + len(others)
            front = [1] * (len(order) - placed)
            channels = [shape[axis] for axis in others]
            out = self.builder.reshape(out, [*front, *sizes, *channels])
        inverse = [order.index(axis) for axis in range(len(order))]
        return self.builder.transpose(out, inverse)

    def single(
        self,
        place: Tensor,
        channel: Tensor,
        what: Tensor,
        count: int,
    ) -> Tensor:
        """Return the value of each channel, (count,).

        Args:
            place: Place of each element.
            channel: Channel of each element.
            what: Value of each element.
            count: Number of channels.

        Raises:
            NotOnMap: A channel has different values at different positions of the map.
        """
        what = what.expand(channel.shape)
        inside = self.places.number(place) >= 0
        if bool(unshare(inside).all()):
            (channels, whats), _ = along((), channel, what)  # what all share is the same
        else:
            every_inside = inside.expand(channel.shape)
            channels, whats = _on_map(every_inside, channel, what)
        out = torch.zeros(count, dtype=what.dtype)
        out[channels] = whats
        if not torch.equal(out[channels], whats):
            raise NotOnMap("what is done to a channel differs between places")
        return out

    def compact(self, form: MapForm, place: Tensor) -> MapForm:
        """Return the form with only the channels of elements whose place is on the map."""
        inside = self.places.number(place) >= 0
        (channels,) = _on_map(inside, form.channel.expand(place.shape))
        used = channels.unique()
        if len(used) == form.count:
            return form
        rank = torch.zeros(form.count, dtype=torch.int64)
        rank[used] = torch.arange(len(used))
        node = self.pick(form.node, used, form.count)
        channel = rank[unshare(form.channel)]
        return MapForm(node, channel.expand(form.channel.shape), len(used))

    def pick(
        self,
        node: ir.Value,
        index: Tensor,
        count: int,
    ) -> ir.Value:
        """Return the channels, of ``count``, that an index selects from a map."""
        every_channel = torch.arange(count)
        if len(index) == count and torch.equal(index, every_channel):
            return node
        breaks = (index.diff() != 1).nonzero().flatten() + 1
        runs = torch.tensor_split(index, breaks)
        is_scattered = len(runs) > 1 and len(index) < _RUN * len(runs)
        if is_scattered or not len(index):
            return self.builder.op("Gather", node, index, axis=-1)
        axis = torch.tensor([-1])
        parts = []
        for run in runs:
            start = run[:1]
            end = start + len(run)
            part = self.builder.op("Slice", node, start, end, axis)
            parts.append(part)
        if len(parts) == 1:
            return parts[0]
        return self.builder.op("Concat", *parts, axis=-1)


def _is_open(sizes: Sequence[Side]) -> bool:
    """Return whether one of the sizes of a shape is what remains."""
    return any(isinstance(size, int) and size == -1 for size in sizes)


def _on_map(inside: Tensor, *tensors: Tensor) -> list[Tensor]:
    """Return the elements of tensors of one shape that are inside, each at least once."""
    corner: list[slice] = []
    for axis in range(inside.dim()):
        shared = all(tensor.stride(axis) == 0 for tensor in tensors)
        corner.append(slice(1 if shared else None))
        if shared and inside.stride(axis) == 0:
            first = min(1, inside.shape[axis])
            inside = inside.narrow(axis, 0, first)
        elif shared:
            inside = inside.any(axis, keepdim=True)
    return [tensor[tuple(corner)][inside] for tensor in tensors]
