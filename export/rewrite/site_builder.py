"""Makes the nodes of sites, with lengths that are free or fixed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor

from ...core.ports.port import Shape
from ..execute.node_builder import NodeBuilder
from ..execute.sites import SITE
from ..execute.sized import Sized
from .site_modules import NotOnMap

Side = ir.Value | int
"""A length: a number, or a value of one element."""


class SiteBuilder(NodeBuilder):
    """Collects the nodes of a site, which read values of a graph.

    Attributes:
        sized: The graph at the size of the search.
        other: The graph at another size; None if its sizes are fixed.
    """

    def __init__(
        self,
        graph: ir.Graph,
        sized: Sized,
        other: Sized | None,
        prefix: str,
    ) -> None:
        """Start without nodes; all names begin with the prefix."""
        super().__init__(prefix)
        self.graph = graph
        self.sized = sized
        self.other = other
        self._shapes: dict[tuple[ir.Value, int], ir.Value] = {}

    @property
    def opset(self) -> int:
        """Version of the default domain."""
        return int(self.graph.opset_imports.get("", 18))

    @property
    def free(self) -> bool:
        """Whether the graph is searched for any size."""
        return self.other is not None

    @contextmanager
    def tentative(self) -> Iterator[None]:
        """Remove the nodes that were added if `NotOnMap` is raised."""
        count = len(self.nodes)
        try:
            yield
        except NotOnMap:
            del self.nodes[count:]
            outputs = {output for node in self.nodes for output in node.outputs}
            shapes = self._shapes.items()
            self._shapes = {key: value for key, value in shapes if value in outputs}
            raise

    def site(self, path: str, inputs: Sequence[ir.Value | None]) -> ir.Value:
        """Add the node of a site."""
        output = self.node(SITE, "Site", inputs, ())
        node = output.producer()
        if node is not None:
            node.name = path
        return output

    def _as_value(self, value: Any) -> ir.Value | None:
        if value is None or isinstance(value, ir.Value):
            return value
        return self.constant(torch.as_tensor(value))

    def constant(self, tensor: Tensor, like: ir.Value | None = None) -> ir.Value:
        """Return a constant, of the type of a value of the graph if that is given."""
        array = tensor.detach().cpu().contiguous().numpy()
        if like is None:
            return self.constant_of(array)
        dtype = ir.DataType(self.sized.type_of(like))
        return self.constant_of(array.astype(dtype.numpy()), dtype)

    def lengths(self, value: ir.Value) -> Shape:
        """Return the shape of a value of the graph."""
        return self.sized.shapes[str(value.name)]

    def others(self, value: ir.Value) -> Shape:
        """Return the shape of a value of the graph at the other size."""
        if self.other is None:
            return self.lengths(value)
        lengths = self.lengths(value)
        return self.other.shapes.get(str(value.name), lengths)

    def side(self, value: ir.Value, axis: int) -> Side:
        """Return the length of an axis: a number if it is the same at both sizes."""
        lengths = self.lengths(value)
        others = self.others(value)
        if not self.free:
            return lengths[axis]
        if len(lengths) == len(others) and lengths[axis] == others[axis]:
            return lengths[axis]
        return self.free_side(value, axis)

    def free_side(self, value: ir.Value, axis: int) -> ir.Value:
        """Return the length of an axis as a value of one element."""
        key = (value, axis)
        if key not in self._shapes:
            sizes, place = self._sizes_with(value, axis)
            index = torch.tensor([place])
            self._shapes[key] = self.op("Gather", sizes, index, axis=0)
        return self._shapes[key]

    def find_lasting_side(self, value: ir.Value, axis: int) -> ir.Value:
        """Return `free_side`; a number of images is that of an input, which is always there."""
        both = self.lengths(value)[axis], self.others(value)[axis]
        for graph_input in self.graph.inputs if axis == 0 else ():
            on_pixels = self.sized.follows_input(graph_input) and self.lengths(graph_input)
            if not on_pixels:
                continue
            batch = self.lengths(graph_input)[0], self.others(graph_input)[0]
            if both == batch:
                return self.free_side(graph_input, 0)
        return self.free_side(value, axis)

    def _sizes_with(self, value: ir.Value, axis: int) -> tuple[ir.Value, int]:
        """Return sizes with the length of an axis among them, and where.

        If the graph computes them for a reshape, they are these: the tensor itself may be one that
        the site replaces, and would be computed for its shape alone.
        """
        node = value.producer()
        while node is not None and node.domain == "" and node.inputs:
            sizes = node.inputs[1] if node.op_type == "Reshape" else None
            if sizes is not None and self._is_told(sizes, axis):
                return sizes, axis
            before = node.inputs[0]
            place = self._place_before(node, axis)
            if before is None or place is None:
                break
            value = before
            axis = place
            node = value.producer()
        return self.op("Shape", value), axis

    def _place_before(self, node: ir.Node, axis: int) -> int | None:
        """Return which axis of its input is an axis of a node's result; None if that is unclear."""
        source = node.inputs[0]
        output = node.outputs[0]
        if node.op_type == "Transpose" and "perm" in node.attributes:
            return node.attributes["perm"].as_ints()[axis]
        if source is None or node.op_type not in ("Slice", "Squeeze"):
            return None
        shape = self.lengths(source)
        other = self.others(source)
        places = range(len(shape))
        if node.op_type == "Squeeze":
            axes = node.inputs[1] if len(node.inputs) > 1 else None
            if axes is None or not self.sized.is_constant(axes):
                return None
            removed = [int(place) % len(shape) for place in self.sized.constant(axes)]
            return [place for place in places if place not in removed][axis]
        both = self.lengths(output)[axis], self.others(output)[axis]
        if both == (shape[axis], other[axis]):
            return axis
        return None

    def _is_told(self, sizes: ir.Value, axis: int) -> bool:
        """Return whether an element of sizes is a length at each size of the graph."""
        return not self.sized.follows_input(sizes) and all(
            sized.is_constant(sizes) and int(sized.constant(sizes)[axis]) > 0
            for sized in (self.sized, self.other)
            if sized is not None
        )

    def divide(self, side: Side, by: int) -> Side:
        """Return a length divided by a number."""
        if by == 1:
            return side
        if isinstance(side, int):
            return side // by
        return self.op("Div", side, torch.tensor([by]))

    def multiply(self, sides: Sequence[Side]) -> Side:
        """Return the product of lengths; -1 if one of them is that."""
        if any(isinstance(side, int) and side == -1 for side in sides):
            return -1
        product = sides[0]
        for side in sides[1:]:
            factors = [torch.tensor([s]) if isinstance(s, int) else s for s in (product, side)]
            product = self.op("Mul", *factors)
        return product

    def reshape(self, value: ir.Value, sides: Sequence[Side]) -> ir.Value:
        """Return a value in another shape; -1 is what remains, and 0 an unchanged length."""
        return self.op("Reshape", value, self.list_sides(sides))

    def list_sides(self, sides: Sequence[Side]) -> ir.Value:
        """Return a tensor of sides: a constant if all of them are numbers."""
        if all(isinstance(side, int) for side in sides):
            return self.constant(torch.tensor(sides))
        parts = [torch.tensor([side]) if isinstance(side, int) else side for side in sides]
        return self.op("Concat", *parts, axis=0)

    def transpose(self, value: ir.Value, order: Sequence[int]) -> ir.Value:
        """Return a value with its axes in another order."""
        if list(order) == sorted(order):
            return value
        return self.op("Transpose", value, perm=list(order))
