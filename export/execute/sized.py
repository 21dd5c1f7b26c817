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
from ...core.ports.port import Shape
from ...runtime.machine.memory import release_free_memory
from ...runtime.ort_values import OrtValue, copy_from_ort, copy_to_ort
from .folding import Folding, add_shapes, forget, is_shaped
from .names import find_read_names, find_result_names, list_names
from .parts import (
    RANDOM,
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

    shapes: dict[str, Shape] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    data: frozenset[str] = frozenset()
    _constants: Values = field(default_factory=dict)
    _large: _Large | None = None

    def follows_input(self, value: ir.Value) -> bool:
        """Return whether a value depends on pixels."""
        return str(value.name) in self.data

    def shape_of(self, value: ir.Value) -> Shape:
        """Return the shape of a value; () if it is not known."""
        return self.shapes.get(str(value.name), ())

    def type_of(self, value: ir.Value) -> int:
        """Return the type of a value, as ONNX numbers it."""
        return self.types[str(value.name)]

    def constant(self, value: ir.Value) -> Tensor:
        """Return a value that depends on no pixel; half precision as float32."""
        tensor = value.const_value if is_stored(value) else None
        if tensor is None:
            return as_tensor(copy_from_ort(self.ort_value(value)))
        return as_tensor(np.array(tensor.numpy()))

    def ort_value(self, value: ir.Value) -> OrtValue:
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
        self.runner = runner
        self.nodes = nodes
        self._names = find_result_names(nodes)
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
        while len(self.recent) > 1:
            sizes = [math.prod(value.shape()) for value in self.recent.values()]
            if 4 * sum(sizes) <= _MOST_KEPT:
                break
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
        wide = np.int64 if array.dtype.kind == "u" else np.float32
        array = array.astype(wide)
    return torch.from_numpy(array)


def find_pixel_values(graph: ir.Graph) -> frozenset[str]:
    """Return the names of the values that depend on pixels of an input, not only on its size."""
    data = {str(value.name) for value in graph.inputs if not value.is_initializer()}
    for node in graph:
        if node.op_type in _SIZES and node.domain == "":
            continue
        random = node.op_type.startswith(RANDOM)
        read = node.inputs[:1] if node.op_type == "CastLike" else find_reads(node)
        if random or not data.isdisjoint(list_names(read)):
            data.update(list_names(node.outputs))
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
    folding = Folding(model, feeds, sized)
    while folding.advance():
        pass
    sized._constants.update(folding.values())
    if folding.large:
        large = list(folding.large.values())
        sized._large = _Large(PartRunner(model), large)
    complete = not model.functions
    for node in graph:
        if node not in folding.results:
            complete = complete and is_shaped(node, sized.shapes) and not graphs_of(node)
    if not complete:
        _run(model, feeds, sized)
    return sized


def _run(model: ir.Model, feeds: Mapping[str, Array], sized: Sized) -> None:
    nodes = list(model.graph)
    values = {name: copy_to_ort(array) for name, array in feeds.items()}
    outputs = find_result_names(nodes)
    last = find_last_uses(nodes)
    constants = set(list_names(model.graph.outputs))
    for node in nodes:  # what is combined with pixels; what only that is made of may be large
        if any(sized.follows_input(value) for value in node.outputs):
            constants |= find_read_names([node])
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
        add_shapes(tensors, sized)
        names_found = tensors.keys() & constants
        sized._constants.update((name, tensors[name]) for name in names_found)
        values |= results
        del results, tensors  # the next part runs without what is read no longer
        forget(part, last, values)
