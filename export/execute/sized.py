"""The shapes of an ONNX graph at one size of its inputs, and its values that depend on no pixel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from ...core.arrays import Array
from ...runtime.machine.memory import release_free_memory
from ...runtime.ort_values import OrtValue, copy_from_ort, copy_to_ort
from .inference import infer
from .parts import (
    MOST_BYTES,
    PartRunner,
    TooLargeError,
    Values,
    cut_into_parts,
    find_last_uses,
    find_reads,
    graphs_of,
    halve,
    is_stored,
    make_parts,
)
from .sites import select_nodes

MOST_ELEMENTS = 1 << 31
"""Most elements of a tensor."""

_LARGE = 1 << 20
"""Constants of more elements, such as masks, are computed when they are asked for."""

_MOST_KEPT = 3 << 27
"""Most bytes of large constants that are kept for the next time."""

_SIZES = ("Shape", "Size")


@dataclass
class Sized:
    """A graph at one size of its inputs.

    Attributes:
        shapes: Shape of every tensor, by name.
        types: Type of every tensor, as ONNX numbers it.
        data: Names of the values that depend on pixels.
    """

    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    data: frozenset[str] = frozenset()
    _constants: Values = field(default_factory=dict)
    _large: _Large | None = None

    def constant(self, value: ir.Value) -> Tensor:
        """Return a value that depends on no pixel; half precision as float32."""
        tensor = value.const_value if is_stored(value) else None
        if tensor is None:
            return as_tensor(copy_from_ort(self.held(value)))
        return as_tensor(np.array(tensor.numpy()))

    def held(self, value: ir.Value) -> OrtValue:
        """Return a value that depends on no pixel as onnxruntime takes it."""
        name = str(value.name)
        if name in self._constants or self._large is None:
            return self._constants[name]
        return self._large.value(name, self._constants)

    def release(self) -> None:
        """Free large constants, which a request computes again, and return free memory."""
        if self._large is not None:
            self._large.recent.clear()
        release_free_memory()

    def is_constant(self, value: ir.Value) -> bool:
        """Return whether a value is known and depends on no pixel."""
        name = str(value.name)
        return is_stored(value) or name in self._constants or name in (self._large or ())


class _Large:
    """Large constants of a graph, computed when they are asked for."""

    def __init__(self, runner: PartRunner, nodes: Sequence[ir.Node]) -> None:
        self.runner, self.nodes = runner, nodes
        self._names = {str(value.name) for node in nodes for value in node.outputs}
        self.recent: Values = {}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def value(self, name: str, computed: Values) -> OrtValue:
        """Return a constant; ``computed`` are those that are computed already."""
        constant = self.recent.pop(name, None)
        if constant is None:
            needed = select_nodes(self.nodes, [name])
            (part,) = make_parts([needed], [name])
            constant = self.runner.run(part, computed)[name]
        self.recent[name] = constant
        while (
            len(self.recent) > 1
            and sum(4 * math.prod(value.shape()) for value in self.recent.values()) > _MOST_KEPT
        ):
            del self.recent[next(iter(self.recent))]
        return constant


def as_tensor(array: Array) -> Tensor:
    """Return a tensor of an array; types that PyTorch does not compute with become float32."""
    if array.dtype.kind not in "biuf" or array.dtype in (
        np.float16,
        np.uint16,
        np.uint32,
        np.uint64,
    ):
        array = array.astype(np.int64 if array.dtype.kind == "u" else np.float32)
    return torch.from_numpy(array)


def find_pixel_values(graph: ir.Graph) -> frozenset[str]:
    """Return the names of the values that depend on pixels of an input, not only on its size."""
    data = {str(value.name) for value in graph.inputs if not value.is_initializer()}
    for node in graph:
        if node.op_type in _SIZES and node.domain == "":
            continue
        random = node.op_type.startswith(("Random", "Bernoulli", "Multinomial"))
        read = node.inputs[:1] if node.op_type == "CastLike" else find_reads(node)
        if random or any(value is not None and str(value.name) in data for value in read):
            data.update(str(value.name) for value in node.outputs if value.name)
    return frozenset(data)


def infer_sizes(model: ir.Model, feeds: Mapping[str, Array]) -> Sized:
    """Return a graph at the size of some inputs.

    Shapes are inferred by ONNX; only where that does not determine all, as with subgraphs, which
    may compute more than their results tell, the graph is run, with limited memory.

    Raises:
        TooLargeError: A tensor is too large, or all of them together need too much memory.
        UnsupportedModelError: onnxruntime cannot compute a node.
    """
    graph = model.graph
    sized = Sized(data=find_pixel_values(graph))
    for name, value in graph.initializers.items():
        if (tensor := value.const_value) is not None:
            sized.shapes[name] = tuple(tensor.shape.numpy())
            sized.types[name] = int(tensor.dtype)
    for name, array in feeds.items():
        sized.shapes[name] = array.shape
    folded = _Folded(model, feeds, sized)
    while folded.advance():
        pass
    sized._constants.update(folded.values())
    if folded.large:
        sized._large = _Large(PartRunner(model), list(folded.large.values()))
    complete = not model.functions and all(
        str(value.name) in sized.shapes and not graphs_of(node)
        for node in graph
        if node not in folded.made
        for value in node.outputs
        if value.name
    )
    if not complete:
        _run(model, feeds, sized)
    return sized


class _Folded:
    """The nodes of a graph that depend on no pixel, computed as far as shapes are known."""

    def __init__(self, model: ir.Model, feeds: Mapping[str, Array], sized: Sized) -> None:
        self.model, self.feeds, self.sized = model, feeds, sized
        self.made: dict[ir.Node, Values] = {}
        self.large: dict[ir.Node, ir.Node] = {}  # computed when they are asked for, as casts
        self.last = find_last_uses(model.graph)
        self.reads = {node: {str(value.name) for value in find_reads(node)} for node in model.graph}

    def values(self) -> Values:
        """Return the values that are still known, by name."""
        return {name: value for results in self.made.values() for name, value in results.items()}

    def advance(self) -> bool:
        """Infer shapes, and compute the nodes that this allows; return whether there were any.

        Values from which only computed ones are computed are forgotten: they may be large.

        Raises:
            TooLargeError: A tensor is too large, or all of them together need too much memory.
        """
        graph, sized = self.model.graph, self.sized
        infer(self.model, self.feeds, self.made, sized.shapes, sized.types, sized.data)
        _refuse_large(graph, sized, self.last)
        values, nodes = self.values(), self._next(told=True) or self._next(told=False)
        todo = [*self.large.values(), *(self._cast(n) for n, known in nodes.items() if not known)]
        for node, known in nodes.items():
            if not known and self._is_large(node):
                self.large[node] = self._cast(node)
            else:
                self.made[node] = known
                values |= known
        read = {str(value.name) for value in graph.outputs}
        for node in graph:
            if node not in self.made:
                read |= self.reads[node]
        by_name = {str(v.name): node for node in nodes if node in self.made for v in node.outputs}
        todo = select_nodes(todo, read & by_name.keys())
        told = all(str(v.name) in sized.shapes for node in todo for v in node.outputs if v.name)
        nested = bool(self.model.functions) or any(map(graphs_of, todo))
        runner = PartRunner(self.model, bounded=nested or not told)
        last = find_last_uses(todo)
        for part in cut_into_parts(todo, read & by_name.keys()):
            made = {name: v for name, v in runner.run(part, values).items() if v.is_tensor()}
            values |= made
            for name in made.keys() & by_name.keys():
                self.made[by_name[name]][name] = made[name]
            for held in (held for node in part.nodes for held in last.get(node, ())):
                values.pop(str(held.name), None)
        for made in self.made.values():
            for name in made.keys() - read:
                del made[name]
            _add_shapes(made, sized)
        return bool(nodes)

    def _next(self, *, told: bool) -> dict[ir.Node, Values]:
        """Return the nodes that can be computed, with the results of those that give a shape.

        Args:
            told: Only those whose own shapes are inferred: large ones need not be computed.
        """
        sized, found = self.sized, dict[ir.Node, Values]()
        there = set(self.values())
        there |= {str(value.name) for node in self.large for value in node.outputs}
        for node in self.model.graph:
            done = node in self.made or node in self.large
            if done or any(str(v.name) in sized.data for v in node.outputs):
                continue
            source = node.inputs[0] if node.inputs else None
            of_pixels = source is not None and str(source.name) in sized.data
            if source is not None and of_pixels and str(source.name) in sized.shapes:
                found[node] = _read_size(node, sized.shapes[str(source.name)])
            elif (
                not of_pixels
                and (not told or all(str(v.name) in sized.shapes for v in node.outputs if v.name))
                and all(is_stored(v) or v.name in there for v in self._read(node))
            ):
                found[node] = {}
            else:
                continue
            there |= {str(value.name) for value in node.outputs}
        return found

    def _is_large(self, node: ir.Node) -> bool:
        """Return whether all results of a node are known to be large."""
        shapes = [self.sized.shapes.get(str(value.name), ()) for value in node.outputs]
        return not graphs_of(node) and all(math.prod(shape) > _LARGE for shape in shapes)

    def _cast_type(self, node: ir.Node) -> int | None:
        """Return the type that a ``CastLike`` casts to; None for another node, or if unknown."""
        like = node.inputs[1] if node.op_type == "CastLike" else None
        return None if like is None else self.sized.types.get(str(like.name))

    def _read(self, node: ir.Node) -> list[ir.Value]:
        read = list(find_reads(node))
        return read if self._cast_type(node) is None else read[:1]

    def _cast(self, node: ir.Node) -> ir.Node:
        """Return a ``CastLike`` as a cast to its type, and other nodes as they are."""
        kind = self._cast_type(node)
        if kind is None:
            return node
        outputs = [ir.Value(name=node.outputs[0].name)]
        return ir.Node("", "Cast", node.inputs[:1], [ir.AttrInt64("to", kind)], outputs=outputs)


def _read_size(node: ir.Node, shape: tuple[int, ...]) -> Values:
    start, end = (node.attributes.get(name) for name in ("start", "end"))
    cut = shape[
        slice(None if start is None else start.as_int(), None if end is None else end.as_int())
    ]
    array = np.array(cut if node.op_type == "Shape" else math.prod(shape), np.int64)
    return {str(node.outputs[0].name): copy_to_ort(array)}


def _run(model: ir.Model, feeds: Mapping[str, Array], sized: Sized) -> None:
    nodes = list(model.graph)
    values = {name: copy_to_ort(array) for name, array in feeds.items()}
    outputs = {str(value.name) for node in nodes for value in node.outputs if value.name}
    last, constants = find_last_uses(nodes), {str(value.name) for value in model.graph.outputs}
    for node in nodes:  # what is combined with pixels; what only that is made of may be large
        if any(str(value.name) in sized.data for value in node.outputs):
            constants |= {str(value.name) for value in find_reads(node)}
    constants -= sized.data
    runner = PartRunner(model, bounded=True)
    waiting = cut_into_parts(nodes, outputs)[::-1]
    while waiting:
        part = waiting.pop()
        try:
            results = runner.run(part, values)
        except TooLargeError:
            if len(part.nodes) == 1:
                raise
            waiting += halve(part)[::-1]
            continue
        tensors = {name: value for name, value in results.items() if value.is_tensor()}
        _add_shapes(tensors, sized)
        sized._constants.update((name, tensors[name]) for name in tensors.keys() & constants)
        values |= results
        del results, tensors  # the next part runs without what is read no longer
        for node in part.nodes:
            for ir_value in last.get(node, ()):
                values.pop(str(ir_value.name), None)


def _add_shapes(results: Values, sized: Sized) -> None:
    """Add the shapes and types of tensors."""
    for name, value in results.items():
        sized.shapes[name], sized.types[name] = tuple(value.shape()), value.element_type()


def _refuse_large(
    graph: ir.Graph, sized: Sized, last: Mapping[ir.Node, Sequence[ir.Value]]
) -> None:
    """Raise TooLargeError for tensors that are too large by their inferred shapes.

    Args:
        graph: The graph.
        sized: The shapes.
        last: `find_last_uses` of the graph.
    """
    elements, peak = 0, 0

    def size(name: str) -> int:
        return 4 * math.prod(sized.shapes.get(name, (0,)))

    for node in graph:
        for value in node.outputs:
            count = math.prod(sized.shapes.get(str(value.name), ()))
            if count > MOST_ELEMENTS:
                sides = "x".join(map(str, sized.shapes[str(value.name)]))
                raise TooLargeError(
                    f"{node.op_type} {value.name!r:.80} gives {sides}, expected at most "
                    f"{MOST_ELEMENTS} elements"
                )
        elements += sum(size(str(value.name)) for value in node.outputs if value.name)
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
