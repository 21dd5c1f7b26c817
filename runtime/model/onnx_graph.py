"""The nodes, inputs and outputs of a model file, read without onnx or onnxruntime.

Field numbers of onnx.proto: ``ModelProto.graph`` 7; ``GraphProto.node`` 1, ``.initializer`` 5,
``.input`` 11, ``.output`` 12; ``NodeProto.name`` 3, ``.op_type`` 4, ``.domain`` 7;
``TensorProto.name`` 8; ``ValueInfoProto.name`` 1, ``.type`` 2; ``TypeProto.tensor_type`` 1; in it
``elem_type`` 1 and ``shape`` 2; ``TensorShapeProto.dim`` 1; in it ``dim_value`` 1 and
``dim_param`` 2.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

from .external_data import messages
from .model_facts import ModelFacts, TensorInfo, parse_facts
from .onnx_header import message_fields, message_strings, open_model, read_onnx_header

_GRAPH, _NODE = 7, 1
_NAME, _OP_TYPE, _DOMAIN = 3, 4, 7


def count_nodes(path: str | os.PathLike[str]) -> int:
    """Return the number of nodes in the main graph of a model file.

    Nodes inside function bodies and inside the branches of If, Loop and Scan are not counted, as in
    the number that nystra-export reports.

    Raises:
        NystraError: The file is missing, not ONNX or cut short.
    """
    with open_model(path) as data:
        return sum(1 for _ in graph_spans(data, _NODE))


def domain_nodes(path: str | os.PathLike[str], domain: str) -> list[tuple[str, str]]:
    """Return (name, operator) of every node of an operator domain in the main graph.

    Raises:
        NystraError: The file is missing, not ONNX or cut short.
    """
    numbers = (_NAME, _OP_TYPE, _DOMAIN)
    with open_model(path) as data:
        nodes = [message_strings(data, span, numbers) for span in graph_spans(data, _NODE)]
    return [
        (node.get(_NAME, ""), node.get(_OP_TYPE, ""))
        for node in nodes
        if node.get(_DOMAIN, "") == domain
    ]


def has_node(path: str | os.PathLike[str], operator: str, *, nested: bool = False) -> bool:
    """Whether a node of an operator is in a model file; ``nested``: in branches and functions too.

    Raises:
        NystraError: The file is missing, not ONNX or cut short.
    """
    with open_model(path) as data:
        spans = messages(data, "node") if nested else graph_spans(data, _NODE)
        nodes = (message_strings(data, span, (_OP_TYPE,)) for span in spans)
        return any(node.get(_OP_TYPE) == operator for node in nodes)


def graph_spans(data: mmap.mmap, kind: int) -> Iterator[tuple[int, int]]:
    """Yield where the messages of one field of the main graph are.

    Args:
        data: The result of `open_model`.
        kind: Number of the field of ``GraphProto``.
    """
    for number, graph in message_fields(data, 0, len(data)):
        if number == _GRAPH and isinstance(graph, tuple):
            for field, span in message_fields(data, *graph):
                if field == kind and isinstance(span, tuple):
                    yield span


_INITIALIZER, _INPUT, _OUTPUT = 5, 11, 12
_DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    16: "bfloat16",
}

_NEGATIVE = 1 << 63
"""From here on the varint of an int64 is of a negative one."""

Span = tuple[int, int]


def read_facts(path: str | os.PathLike[str]) -> ModelFacts:
    """Return the facts of a file and of its inputs, without loading it in a backend.

    Raises:
        NystraError: The file is missing, not ONNX or cut short, or its metadata cannot be read.
    """
    return parse_facts(read_onnx_header(path).metadata, read_inputs(path), [])


def read_inputs(path: str | os.PathLike[str]) -> list[TensorInfo]:
    """Return the inputs of a model file's graph that have no initial value.

    Raises:
        NystraError: The file is missing, not ONNX or cut short.
    """
    with open_model(path) as data:
        spans = graph_spans(data, _INITIALIZER)
        initial = {message_strings(data, span, (8,)).get(8) for span in spans}
        tensors = [_tensor(data, span) for span in graph_spans(data, _INPUT)]
    return [tensor for tensor in tensors if tensor.name not in initial]


def read_outputs(path: str | os.PathLike[str]) -> list[TensorInfo]:
    """Return the outputs of a model file's graph.

    Raises:
        NystraError: The file is missing, not ONNX or cut short.
    """
    with open_model(path) as data:
        return [_tensor(data, span) for span in graph_spans(data, _OUTPUT)]


def _tensor(data: mmap.mmap, span: Span) -> TensorInfo:
    name = message_strings(data, span, (1,)).get(1, "")
    dtype = "unknown"
    shape: tuple[int | str | None, ...] = ()
    for kind in _messages(data, span, 2):
        for tensor in _messages(data, kind, 1):
            for field, value in message_fields(data, *tensor):
                if field == 1 and isinstance(value, int):
                    dtype = _DTYPES.get(value, dtype)
            for listed in _messages(data, tensor, 2):
                shape = tuple(_dimension(data, dim) for dim in _messages(data, listed, 1))
    return TensorInfo(name, shape, dtype)


def _dimension(data: mmap.mmap, span: Span) -> int | str | None:
    for number, value in message_fields(data, *span):
        if number == 1 and isinstance(value, int):
            return value if value < _NEGATIVE else None  # some exporters write -1 for any length
    return message_strings(data, span, (2,)).get(2) or None


def _messages(data: mmap.mmap, span: Span, number: int) -> Iterator[Span]:
    for field, value in message_fields(data, *span):
        if field == number and isinstance(value, tuple):
            yield value
