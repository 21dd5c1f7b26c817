"""Computes the nodes of a graph that depend on no pixel, as far as shapes are known."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from ...core.arrays import Array
from ...core.ports.port import Shape, join_sides
from ...runtime.ort_values import copy_to_ort
from .inference import infer
from .names import find_read_names, list_names
from .parts import (
    MOST_BYTES,
    Part,
    PartRunner,
    TooLargeError,
    Values,
    cut_into_parts,
    find_last_uses,
    find_reads,
    graphs_of,
    is_stored,
)
from .sites import select_nodes

if TYPE_CHECKING:
    from .sized import Sized

MOST_ELEMENTS = 1 << 31
"""Most elements of a tensor."""

_LARGE = 1 << 20
"""Constants of more elements, such as masks, are computed when they are asked for."""


class Folding:
    """The nodes of a graph that depend on no pixel, computed as far as shapes are known.

    Attributes:
        results: Nodes that were computed, with those of their results that are still needed.
        large: Nodes whose results are computed when they are asked for, as casts.
    """

    def __init__(
        self,
        model: ir.Model,
        feeds: Mapping[str, Array],
        sized: Sized,
    ) -> None:
        self.model = model
        self.feeds = feeds
        self.sized = sized
        self.results: dict[ir.Node, Values] = {}
        self.large: dict[ir.Node, ir.Node] = {}
        self._last = find_last_uses(model.graph)
        self._reads: dict[ir.Node, set[str]] = {}
        for node in model.graph:
            self._reads[node] = find_read_names([node])

    def values(self) -> Values:
        """Return the values that are still needed, by name."""
        values: Values = {}
        for results in self.results.values():
            values |= results
        return values

    def advance(self) -> bool:
        """Infer shapes, and compute the nodes that this allows; return whether there were any.

        Values from which only computed ones are computed are forgotten: they may be large.

        Raises:
            TooLargeError: A tensor is too large, or all of them together need too much memory.
        """
        graph = self.model.graph
        sized = self.sized
        data = sized.data
        infer(self.model, self.feeds, self.results, sized.shapes, sized.types, data)
        _refuse_large(graph, sized, self._last)
        values = self.values()
        nodes = self._find_next(with_shapes=True) or self._find_next(with_shapes=False)
        pending = [*self.large.values()]
        for node, results in nodes.items():
            if not results:
                pending.append(self._cast(node))
            if not results and self._is_large(node):
                self.large[node] = self._cast(node)
            else:
                self.results[node] = results
                values |= results
        needed = self._find_needed()
        self._compute(pending, values, needed, nodes)
        for results in self.results.values():
            for name in results.keys() - needed:
                del results[name]
            add_shapes(results, sized)
        return bool(nodes)

    def _find_needed(self) -> set[str]:
        """Return the names that outputs of the graph, or nodes that are not computed, read."""
        needed = set(list_names(self.model.graph.outputs))
        for node in self.model.graph:
            if node not in self.results:
                needed |= self._reads[node]
        return needed

    def _compute(
        self,
        pending: Sequence[ir.Node],
        values: Values,
        needed: Collection[str],
        nodes: Collection[ir.Node],
    ) -> None:
        """Compute the needed results of some nodes, and keep them.

        Args:
            pending: Nodes to compute, as casts.
            values: Values by name, which the pending nodes may read.
            needed: Names of needed values.
            nodes: The nodes whose results are kept.
        """
        producers: dict[str, ir.Node] = {}
        for node in nodes:
            if node in self.results:
                producers |= dict.fromkeys(list_names(node.outputs), node)
        requested = producers.keys() & needed
        selected = select_nodes(pending, requested)
        shapes = self.sized.shapes
        bounded = bool(self.model.functions) or any(map(graphs_of, selected))
        bounded = bounded or not all(is_shaped(node, shapes) for node in selected)
        runner = PartRunner(self.model, bounded=bounded)
        last = find_last_uses(selected)
        for part in cut_into_parts(selected, requested):
            results = runner.run(part, values)
            tensors = {name: value for name, value in results.items() if value.is_tensor()}
            del results
            values |= tensors
            for name in tensors.keys() & producers.keys():
                self.results[producers[name]][name] = tensors[name]
            forget(part, last, values)

    def _find_next(self, *, with_shapes: bool) -> dict[ir.Node, Values]:
        """Return the nodes that can be computed, with the results of those that give a shape.

        Args:
            with_shapes: Only those whose own shapes are inferred: large ones need not be computed.
        """
        sized = self.sized
        nodes: dict[ir.Node, Values] = {}
        available = set(self.values())
        for node in self.large:
            available.update(list_names(node.outputs))
        for node in self.model.graph:
            computed = node in self.results or node in self.large
            if computed or any(sized.follows_input(v) for v in node.outputs):
                continue
            first = node.inputs[0] if node.inputs else None
            source = "" if first is None else str(first.name)
            if source in sized.data:
                if source not in sized.shapes:
                    continue
                nodes[node] = _read_size(node, sized.shapes[source])
            else:
                if with_shapes and not is_shaped(node, sized.shapes):
                    continue
                read = self._read(node)
                if not all(is_stored(value) or value.name in available for value in read):
                    continue
                nodes[node] = {}
            available.update(list_names(node.outputs))
        return nodes

    def _is_large(self, node: ir.Node) -> bool:
        """Return whether all results of a node are known to be large."""
        if graphs_of(node):
            return False
        names = [str(value.name) for value in node.outputs]
        shapes = [self.sized.shapes.get(name, ()) for name in names]
        return all(math.prod(shape) > _LARGE for shape in shapes)

    def _cast_type(self, node: ir.Node) -> int | None:
        """Return the type that a ``CastLike`` casts to; None for another node, or if unknown."""
        like = node.inputs[1] if node.op_type == "CastLike" else None
        if like is None:
            return None
        return self.sized.types.get(str(like.name))

    def _read(self, node: ir.Node) -> list[ir.Value]:
        read = list(find_reads(node))
        if self._cast_type(node) is None:
            return read
        return read[:1]

    def _cast(self, node: ir.Node) -> ir.Node:
        """Return a ``CastLike`` as a cast to its type, and other nodes as they are."""
        kind = self._cast_type(node)
        if kind is None:
            return node
        outputs = [ir.Value(name=node.outputs[0].name)]
        to = ir.AttrInt64("to", kind)
        return ir.Node("", "Cast", node.inputs[:1], [to], outputs=outputs)


def _read_size(node: ir.Node, shape: Shape) -> Values:
    start = node.attributes.get("start")
    end = node.attributes.get("end")
    first = None if start is None else start.as_int()
    last = None if end is None else end.as_int()
    size = math.prod(shape) if node.op_type == "Size" else shape[first:last]
    array = np.array(size, np.int64)
    return {str(node.outputs[0].name): copy_to_ort(array)}


def forget(part: Part, last: Mapping[ir.Node, Sequence[ir.Value]], values: Values) -> None:
    """Remove the values that no node after a part reads."""
    for node in part.nodes:
        for value in last.get(node, ()):
            values.pop(str(value.name), None)


def is_shaped(node: ir.Node, shapes: Mapping[str, Shape]) -> bool:
    """Return whether the shapes of all results of a node are inferred."""
    return all(name in shapes for name in list_names(node.outputs))


def add_shapes(results: Values, sized: Sized) -> None:
    """Add the shapes and types of tensors."""
    for name, value in results.items():
        sized.shapes[name] = tuple(value.shape())
        sized.types[name] = value.element_type()


def _refuse_large(
    graph: ir.Graph,
    sized: Sized,
    last: Mapping[ir.Node, Sequence[ir.Value]],
) -> None:
    """Raise TooLargeError for tensors that are too large by their inferred shapes.

    Args:
        graph: The graph.
        sized: The shapes.
        last: `find_last_uses` of the graph.
    """
    elements = 0
    peak = 0

    def size(name: str) -> int:
        return 4 * math.prod(sized.shapes.get(name, (0,)))

    for node in graph:
        for value in node.outputs:
            count = math.prod(sized.shape_of(value))
            if count > MOST_ELEMENTS:
                sides = join_sides(sized.shapes[str(value.name)])
                raise TooLargeError(
                    f"{node.op_type} {value.name!r:.80} gives {sides}, expected at most "
                    f"{MOST_ELEMENTS} elements"
                )
        elements += sum(map(size, list_names(node.outputs)))
        peak = max(peak, elements)
        elements -= sum(
            size(str(value.name))
            for value in last.get(node, ())
            if not value.is_initializer() and not value.is_graph_output()
        )
    if peak > MOST_BYTES:
        raise TooLargeError(
            f"its values need at least {peak / 2**30:.1f} GB at one time, expected at most "
            f"{MOST_BYTES / 2**30:.1f} GB: export it with free sides, or for a smaller image"
        )
