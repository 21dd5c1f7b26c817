"""Reads and checks an ONNX file of another program before it is run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, helper

from ...core.errors import NystraError, UnsupportedModelError
from ...core.ports.port import join_sides
from ...plugins.domain import DOMAIN, opset_of
from ...runtime.model.external_data import external_files
from ..execute.folding import MOST_ELEMENTS
from ..execute.parts import RANDOM, nodes_of, subgraphs

OLDEST, NEWEST = 7, 25
"""Opsets of the files that are read."""

OLDEST_SEARCHED = 18
"""The oldest opset that is searched: files of older ones are raised to it."""

_SIZES: dict[int, int] = {  # bits of an element, by the number of the type in ONNX
    **dict.fromkeys((TensorProto.FLOAT, TensorProto.INT32, TensorProto.UINT32), 32),
    **dict.fromkeys((TensorProto.DOUBLE, TensorProto.INT64, TensorProto.UINT64), 64),
    **dict.fromkeys((TensorProto.FLOAT16, TensorProto.BFLOAT16), 16),
    **dict.fromkeys((TensorProto.INT16, TensorProto.UINT16), 16),
    **dict.fromkeys((TensorProto.INT8, TensorProto.UINT8, TensorProto.BOOL), 8),
    **dict.fromkeys(range(TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2FNUZ + 1), 8),
    **dict.fromkeys((TensorProto.INT4, TensorProto.UINT4), 4),
}

_DEEPEST = 16


def read_model(path: Path) -> onnx.ModelProto:
    """Return a model with all tensors in memory, after a check.

    Raises:
        NystraError: The file cannot be read, is damaged, declares tensors without their data, has
            data outside of its folder, or its nodes are not sorted.
        UnsupportedModelError: It has an unsupported type or opset.
    """
    data = external_files(path)
    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except (DecodeError, ValueError) as error:
        raise NystraError(f"{path} is not an ONNX file: {error}") from error
    except OSError as error:
        raise NystraError(f"cannot read the model {path}: {error.strerror or error}") from error
    for entry in [*model.opset_import, *nodes_of(model.graph)]:
        if entry.domain == "ai.onnx":  # the other name of ONNX's own domain
            entry.domain = ""
    _check_opset(path, model)
    for tensor in _tensors(model.graph, path):
        _complete(path, tensor, data)
    _check_inputs(path, model.graph)
    _check_graph(path, model.graph, set(), 0)
    _refuse_random(path, model)
    return model


def _check_opset(path: Path, model: onnx.ModelProto) -> None:
    if any(entry.domain == DOMAIN for entry in model.opset_import):
        raise UnsupportedModelError(
            f"{path} already has operators of nystra: export again from its checkpoint or its "
            "original ONNX file; see docs/own.md"
        )
    opset = opset_of(model)
    if not OLDEST <= opset <= NEWEST:
        raise UnsupportedModelError(
            f"{path} has opset {opset}, expected {OLDEST} to {NEWEST}: export it again with one "
            "of these; see docs/own.md"
        )


def _refuse_random(path: Path, model: onnx.ModelProto) -> None:
    nodes = [*nodes_of(model.graph)]
    for function in model.functions:
        nodes += nodes_of(function)
    true = {tensor.name for tensor in model.graph.initializer if _is_true(tensor)}
    for node in nodes:
        values = [attribute.t for attribute in node.attribute]
        if node.op_type == "Constant" and any(map(_is_true, values)):
            true.add(node.output[0])
    for node in nodes:
        trains = node.op_type == "Dropout" and true & {*node.input[2:]}
        if node.domain == "" and (node.op_type.startswith(RANDOM) or trains):
            raise UnsupportedModelError(
                f"{path}: {_describe(node)} draws random numbers, so the output is not "
                "deterministic and an exported file could not be validated"
            )


def _is_true(tensor: TensorProto) -> bool:
    is_flag = tensor.data_type == TensorProto.BOOL and not tensor.dims
    return is_flag and bool(onnx.numpy_helper.to_array(tensor))


def _tensors(graph: onnx.GraphProto, path: Path, depth: int = 0) -> Iterator[TensorProto]:
    if depth > _DEEPEST:
        raise NystraError(f"{path} has graphs nested more than {_DEEPEST} deep: not supported")
    if graph.sparse_initializer:
        raise UnsupportedModelError(f"{path} has sparse tensors: not supported; see docs/own.md")
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for inner in subgraphs(node):
            yield from _tensors(inner, path, depth + 1)


def _complete(path: Path, tensor: TensorProto, data: dict[str, Path]) -> None:
    where = f"the tensor {tensor.name!r:.80} of {path}"
    if tensor.data_type not in _SIZES:
        raise UnsupportedModelError(
            f"{where} is of the type {tensor.data_type} of ONNX: not supported; see docs/own.md"
        )
    count = math.prod(tensor.dims)
    sides = [side or 1 for side in tensor.dims]
    has_negative = min(tensor.dims, default=0) < 0
    if has_negative or math.prod(sides) > MOST_ELEMENTS:
        shape = join_sides(tensor.dims)
        raise NystraError(
            f"{where} is declared as {shape}, expected at most {MOST_ELEMENTS} elements"
        )
    size = -(-count * _SIZES[tensor.data_type] // 8)
    if tensor.data_location == TensorProto.EXTERNAL:
        tensor.raw_data = _external(where, tensor, data, size)
        del tensor.external_data[:]
        tensor.data_location = TensorProto.DEFAULT
    if tensor.HasField("raw_data"):
        stored, expected = len(tensor.raw_data), size
    else:
        field = helper.tensor_dtype_to_field(tensor.data_type)
        stored, expected = len(getattr(tensor, field)), count
    if stored != expected:
        unit = "bytes" if tensor.HasField("raw_data") else "numbers"
        raise NystraError(f"{where} holds {stored} {unit}, its shape needs {expected}")


def _external(where: str, tensor: TensorProto, data: dict[str, Path], size: int) -> bytes:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    try:
        offset = int(entries.get("offset", 0))
        length = int(entries.get("length", size))
        with data[entries["location"]].open("rb") as stream:
            stream.seek(offset)
            content = stream.read(size) if length == size else b""
    except (KeyError, ValueError, OverflowError, OSError) as error:
        raise NystraError(f"the data of {where} cannot be read: {error}") from error
    if len(content) != size:
        raise NystraError(
            f"the data of {where} are {min(length, len(content))} bytes at {offset}, its shape "
            f"needs {size}"
        )
    return content


def _check_inputs(path: Path, graph: onnx.GraphProto) -> None:
    for value in [*graph.input, *graph.output]:
        sides = [side.dim_value for side in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.elem_type not in _SIZES:
            raise UnsupportedModelError(
                f"{path}: {value.name!r:.80} is not a tensor of numbers: not supported; "
                "see docs/own.md"
            )
        fixed = [side for side in sides if side not in (0, -1)]  # -1: free, by some programs
        if min(fixed, default=1) < 0 or math.prod(fixed) > MOST_ELEMENTS:
            raise NystraError(
                f"{path}: {value.name!r:.80} is declared as {join_sides(sides)}, "
                f"expected at most {MOST_ELEMENTS} elements"
            )


def _check_graph(path: Path, graph: onnx.GraphProto, outer: set[str], depth: int) -> None:
    own = [value.name for value in [*graph.input, *graph.initializer]]
    names = outer | set(own)
    for node in graph.node:
        for name in node.input:
            if name and name not in names:
                raise NystraError(
                    f"{path}: {_describe(node)} takes {name!r:.80}, which no node before it "
                    "computes: the graph has a cycle or is not sorted"
                )
        for inner in subgraphs(node):
            _check_graph(path, inner, names, depth + 1)
        _refuse_twice(path, node, names)
        names.update(filter(None, node.output))
    missing = [value.name for value in graph.output if value.name not in names]
    if missing:
        raise NystraError(f"{path}: no node computes the output {missing[0]!r:.80}")


def _refuse_twice(path: Path, node: onnx.NodeProto, names: set[str]) -> None:
    twice: Sequence[str] = [name for name in node.output if name and name in names]
    if twice:
        raise NystraError(
            f"{path}: {_describe(node)} gives {twice[0]!r:.80} a second time, expected "
            "each value once"
        )


def _describe(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {node.name!r:.80}" if node.name else f"a {node.op_type}"
