"""Runs an ONNX graph in onnxruntime, a part at a time: any values of it, with bounded memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir
import onnxruntime

from ...core.errors import UnsupportedModelError, foreign_text
from ...runtime.ort_values import OrtValue, copy_from_ort, copy_to_ort

Values = dict[str, OrtValue]

MOST_BYTES = 3 << 29
"""Most bytes of all values that are needed at one time; onnxruntime takes up to twice as much."""

_TOO_LARGE = f"its values need more than {MOST_BYTES / 2**30:.1f} GB at one time"

_PART = 48
"""Nodes of a part whose values are all kept until it has run."""

_NO_TENSORS = ("Sequence", "SplitToSequence", "ConcatFromSequence", "Optional")
"""Beginnings of operators whose results may be no tensors: a graph with them is one part."""


class TooLargeError(UnsupportedModelError):
    """A graph needs more memory than it may take."""


@dataclass(frozen=True)
class Part:
    """Consecutive nodes of a graph.

    Attributes:
        nodes: The nodes, in order.
        takes: Names of the values of earlier nodes or inputs that they read.
        gives: Names of their results that later nodes or the caller need.
    """

    nodes: tuple[ir.Node, ...]
    takes: tuple[str, ...]
    gives: tuple[str, ...]


def find_reads(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the values that a node and its subgraphs read, without those of the subgraphs."""
    yield from (value for value in node.inputs if value is not None)
    for graph in graphs_of(node):
        own = {*graph.inputs, *graph.initializers.values()}
        for inner in graph:
            yield from (value for value in find_reads(inner) if value not in own)
            own.update(inner.outputs)
        yield from (value for value in graph.outputs if value not in own)


def graphs_of(node: ir.Node) -> list[ir.Graph]:
    """Return the subgraphs of a node."""
    graphs: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            graphs.append(attribute.value)
        elif attribute.type == ir.AttributeType.GRAPHS:
            graphs.extend(attribute.value)
    return graphs


def find_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs of a model that are no constants."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in constants]


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the subgraphs of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


RANDOM = ("Random", "Bernoulli", "Multinomial")
"""Beginnings of the names of the operators that draw random numbers."""


def nodes_of(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from nodes_of(inner)


def find_names_read(node: onnx.NodeProto) -> set[str]:
    """Return the names that a node and its subgraphs read, those of the subgraphs too."""
    read = set(node.input)
    for graph in subgraphs(node):
        read |= {value.name for value in graph.output}
        read = read.union(*map(find_names_read, graph.node))
    return read


def find_names_read_in(graph: onnx.GraphProto) -> set[str]:
    """Return the names of the values that a node, a subgraph of one, or an output reads."""
    names = {value.name for value in graph.output}
    return names.union(*map(find_names_read, graph.node))


def find_last_uses(nodes: Iterable[ir.Node]) -> dict[ir.Node, list[ir.Value]]:
    """Return, for each of some nodes in order, the values that none after it reads."""
    last = {value: node for node in nodes for value in find_reads(node)}
    uses: dict[ir.Node, list[ir.Value]] = {}
    for value, node in last.items():
        uses.setdefault(node, []).append(value)
    return uses


def is_stored(value: ir.Value) -> bool:
    """Return whether a value is a constant that the model holds."""
    return value.const_value is not None and value.producer() is None


def cut_into_parts(
    nodes: Sequence[ir.Node], requested: Collection[str], size: int = _PART
) -> list[Part]:
    """Return nodes cut into parts, such that wanted values are results of their part.

    Args:
        nodes: Nodes in order.
        requested: Names of values that the caller needs.
        size: Number of nodes of a part.
    """
    if any(node.op_type.startswith(_NO_TENSORS) for node in nodes):
        size = max(len(nodes), 1)
    starts = range(0, len(nodes), size)
    return make_parts([nodes[start : start + size] for start in starts], requested)


def make_parts(groups: Sequence[Sequence[ir.Node]], requested: Collection[str]) -> list[Part]:
    """Return groups of nodes as parts; each may read what earlier groups give."""
    needed = set(requested)
    parts = []
    for group in reversed(groups):
        results = [value for node in group for value in node.outputs]
        outputs = {str(value.name) for value in results if value.name}
        read = dict.fromkeys(
            str(value.name)
            for node in group
            for value in find_reads(node)
            if value.name not in outputs and not is_stored(value)
        )
        gives = tuple(name for name in outputs if name in needed)
        parts.append(Part(tuple(group), tuple(read), gives))
        needed = (needed - outputs) | read.keys()
    return parts[::-1]


def halve(part: Part) -> list[Part]:
    """Return a part of several nodes as two parts, which keep fewer values at one time."""
    middle = len(part.nodes) // 2
    first = part.nodes[:middle]
    return make_parts([first, part.nodes[middle:]], part.gives)


class PartRunner:
    """Runs parts of one model."""

    def __init__(self, model: ir.Model, *, bounded: bool = False) -> None:
        """Take a model, whose graph is not modified; ``bounded`` as in `open_session`."""
        self.model = model
        self.bounded = bounded
        self._functions = [
            ir.serde.serialize_function(function) for function in model.functions.values()
        ]

    def run(
        self,
        part: Part,
        values: Values,
        *,
        optimized: bool = False,
    ) -> Values:
        """Return the results of a part.

        Args:
            part: The part.
            values: Values by name, with those that it takes.
            optimized: Whether onnxruntime may fuse nodes.

        Raises:
            TooLargeError: It is bounded, and its values, or those of the run, take too much memory.
            UnsupportedModelError: onnxruntime cannot compute it.
        """
        if not part.gives:
            return {}
        if self.bounded and sum(map(_bytes, values.values())) > MOST_BYTES:
            raise TooLargeError(_TOO_LARGE)
        feeds = {name: values[name] for name in part.takes}
        session = self.session(part, feeds, optimized=optimized)
        return self.run_session(session, part, feeds)

    def run_session(
        self,
        session: onnxruntime.InferenceSession,
        part: Part,
        feeds: Values,
    ) -> Values:
        """Return the results of a part from its session.

        Raises:
            UnsupportedModelError: onnxruntime cannot compute it.
        """
        try:
            outputs = session.run_with_ort_values(list(part.gives), feeds)
        except Exception as error:  # onnxruntime raises errors of several kinds
            line = _first_line(error)
            if self.bounded:
                _free_unused()
            if self.bounded and "Available memory of" in line:
                raise TooLargeError(_TOO_LARGE) from error
            raise UnsupportedModelError(f"onnxruntime cannot compute it: {line}") from error
        results: Values = dict(zip(part.gives, outputs, strict=True))
        if self.bounded:
            del outputs
            for name in results:
                results[name] = _copy_value(results[name])
            _free_unused()
        return results

    def session(
        self,
        part: Part,
        feeds: Mapping[str, OrtValue],
        *,
        optimized: bool = False,
        sized: bool = False,
    ) -> onnxruntime.InferenceSession:
        """Return a session of a part; arguments as of `run` and `part_model`."""
        try:
            model = part_model(self.model, part, feeds, self._functions, sized=sized)
            return open_session(model, optimized=optimized, bounded=self.bounded)
        except Exception as error:  # onnxruntime raises errors of several kinds
            if optimized:  # its optimizer makes some graphs invalid
                return self.session(part, feeds)
            if not sized:
                return self.session(part, feeds, sized=True)
            raise UnsupportedModelError(
                f"onnxruntime cannot open it: {_first_line(error)}"
            ) from error


def part_model(
    model: ir.Model,
    part: Part,
    feeds: Mapping[str, OrtValue],
    functions: Sequence[onnx.FunctionProto] = (),
    *,
    sized: bool = False,
) -> onnx.ModelProto:
    """Return a part as a model, whose inputs have the types and numbers of axes of ``feeds``.

    Args:
        model: The model.
        part: Some of its nodes.
        feeds: Values of its inputs.
        functions: Bodies of operators that the nodes call.
        sized: Whether lists of integers, such as shapes, have the length of those of ``feeds``:
            onnxruntime 1.32 does not resize to a shape whose length it does not know.
    """

    def declare(name: str) -> onnx.ValueInfoProto:
        kind = feeds[name].element_type()
        shape = feeds[name].shape()
        is_list = sized and kind == onnx.TensorProto.INT64 and len(shape) == 1
        axes = list(shape) if is_list else [None] * len(shape)
        return onnx.helper.make_tensor_value_info(name, kind, axes)

    read = {value.name: value for node in part.nodes for value in find_reads(node)}
    initializers = [serialize_constant(value) for name, value in read.items() if is_stored(value)]
    graph = onnx.helper.make_graph(
        [ir.serde.serialize_node(node) for node in part.nodes],
        "part",
        [declare(name) for name in part.takes],
        [onnx.ValueInfoProto(name=name) for name in part.gives],
        initializers,
    )
    opsets = [
        onnx.helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()
    ]
    proto = onnx.helper.make_model(graph, opset_imports=opsets, functions=functions)
    proto.ir_version = max(model.ir_version, 8)
    return proto


def serialize_constant(value: ir.Value) -> onnx.TensorProto:
    """Return a constant that a model holds.

    Raises:
        ValueError: It holds none.
    """
    if value.const_value is None:
        raise ValueError(f"{value.name} is no constant")
    proto: onnx.TensorProto = ir.serde.serialize_tensor(value.const_value)
    proto.name = str(value.name)
    return proto


def make_constant(name: str, tensor: Any) -> ir.Value:
    """Return a value that holds a tensor of `onnx_ir`."""
    kind = ir.TensorType(tensor.dtype)
    shape = ir.Shape(tensor.shape)
    return ir.Value(name=name, type=kind, shape=shape, const_value=tensor)


def open_session(
    model: onnx.ModelProto | bytes,
    *,
    optimized: bool = True,
    bounded: bool = False,
) -> onnxruntime.InferenceSession:
    """Return a session of plain onnxruntime on the CPU.

    Args:
        model: The model.
        optimized: Whether nodes may be fused.
        bounded: Whether runs fail that need more than `MOST_BYTES`, instead of taking the memory.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.enable_cpu_mem_arena = False  # it would keep the memory of a run
    if bounded:
        _limit_memory()
        options.add_session_config_entry("session.use_env_allocators", "1")
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = model if isinstance(model, bytes) else model.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _copy_value(value: OrtValue) -> OrtValue:
    """Return a value in memory of its own.

    A small value inside a large block of the limited allocator would keep all of the block.
    """
    if not value.is_tensor() or not _is_number(value.element_type()):
        return value
    return copy_to_ort(copy_from_ort(value))


def _is_number(kind: int) -> bool:
    """Return whether numpy itself has a type of ONNX."""
    return kind != onnx.TensorProto.STRING and ir.DataType(kind).numpy().kind in "biuf"


def _bytes(value: OrtValue) -> int:
    if not value.is_tensor():
        return 0
    bits = ir.DataType(value.element_type()).bitwidth
    return math.prod(value.shape()) * max(bits // 8, 1)


def _free_unused() -> None:
    """Let the limited allocator return the blocks that no value is in: it counts them otherwise."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    _smallest_session().run(None, {}, options)


@functools.cache
def _smallest_session() -> onnxruntime.InferenceSession:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Constant", [], ["y"], value_float=0.0)],
        "smallest",
        [],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [])],
    )
    opset = onnx.helper.make_opsetid("", 20)
    model = onnx.helper.make_model(graph, opset_imports=[opset])
    model.ir_version = 8
    return open_session(model, bounded=True)


@functools.cache
def _limit_memory() -> None:
    """Give onnxruntime an allocator of limited size, for the sessions that ask for it."""
    arena = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    info = onnxruntime.OrtMemoryInfo("Cpu", arena, 0, onnxruntime.OrtMemType.DEFAULT)
    as_needed = {"max_mem": MOST_BYTES, "arena_extend_strategy": 1}
    onnxruntime.create_and_register_allocator(info, onnxruntime.OrtArenaCfg(as_needed))


def _first_line(error: Exception) -> str:
    return foreign_text(error).partition("\n")[0]
