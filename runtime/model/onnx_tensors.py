"""The inputs and outputs of a model file, read without onnx or onnxruntime.

Field numbers of onnx.proto: ``GraphProto.initializer`` 5, ``.input`` 11, ``.output`` 12;
``TensorProto.name`` 8; ``ValueInfoProto.name`` 1, ``.type`` 2; ``TypeProto.tensor_type`` 1; in it
``elem_type`` 1 and ``shape`` 2; ``TensorShapeProto.dim`` 1; in it ``dim_value`` 1 and
``dim_param`` 2.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

from .model_facts import ModelFacts, TensorInfo, parse_facts
from .onnx_header import message_fields, message_strings, opened_model, read_onnx_header
from .onnx_nodes import graph_spans

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
    with opened_model(path) as data:
        spans = graph_spans(data, _INITIALIZER)
        initial = {message_strings(data, span, (8,)).get(8) for span in spans}
        tensors = [_tensor(data, span) for span in graph_spans(data, _INPUT)]
    return [tensor for tensor in tensors if tensor.name not in initial]


def read_outputs(path: str | os.PathLike[str]) -> list[TensorInfo]:
    """Return the outputs of a model file's graph.

    Raises:
        NystraError: The file is missing, not ONNX or cut short.
    """
    with opened_model(path) as data:
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
            return value
    return message_strings(data, span, (2,)).get(2) or None


def _messages(data: mmap.mmap, span: Span, number: int) -> Iterator[Span]:
    for field, value in message_fields(data, *span):
        if field == number and isinstance(value, tuple):
            yield value
