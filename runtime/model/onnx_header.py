"""The head of an ONNX file, read without onnx or onnxruntime.

Only the outermost fields of the protobuf message ``ModelProto`` are walked (field numbers of
onnx.proto); the graph is skipped by its length. That is enough to say whether a file is ONNX
at all, whether it is cut short, which operator domains it imports and what its metadata say.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...plugins.errors import NystraError
from ...plugins.files import regular_file

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_KNOWN_FIELDS = {1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26}


@dataclass(frozen=True)
class OnnxHeader:
    """What stands in a model file around its graph.

    Attributes:
        ir_version: Version of the file format.
        producer: Name of the program that wrote the file.
        opsets: Operator domain -> version; the standard domain is ``""``.
        functions: (domain, name) of every model-local function.
        metadata: The file's ``metadata_props``.
    """

    ir_version: int = 0
    producer: str = ""
    opsets: dict[str, int] = field(default_factory=dict)
    functions: tuple[tuple[str, str], ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)


def read_onnx_header(path: str | os.PathLike[str]) -> OnnxHeader:
    """Read the head of a model file.

    Raises:
        NystraError: The file is missing, empty, not ONNX or cut short.
    """
    with opened_model(path) as data:
        return _parse(data, len(data))


@contextmanager
def opened_model(path: str | os.PathLike[str]) -> Iterator[mmap.mmap]:
    """Yield the bytes of a model file; what is found wrong while they are read is refused.

    Raises:
        NystraError: The file is missing, empty, not ONNX or cut short.
    """
    file = regular_file(path, "the model")
    try:
        with file.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size == 0:
                raise NystraError(f"{file} is empty, expected an ONNX file")
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield data
    except OSError as error:
        raise NystraError(f"cannot read the model {file}: {error.strerror or error}") from error
    except _TruncatedError as error:
        raise NystraError(
            f"{file} is a truncated ONNX file: {error}. Copy or export it again."
        ) from error
    except ValueError as error:
        raise NystraError(
            f"{file} is not an ONNX file ({error}): expected a file written by nystra-export"
        ) from error


class _TruncatedError(ValueError):
    """A length that reaches beyond the end of the file."""


def _parse(data: mmap.mmap, size: int) -> OnnxHeader:
    ir_version, producer, has_graph = 0, "", False
    opsets: dict[str, int] = {}
    functions: list[tuple[str, str]] = []
    metadata: dict[str, str] = {}
    for number, value in message_fields(data, 0, size):
        if number not in _KNOWN_FIELDS:
            raise ValueError(f"unknown field {number}")
        if number == 7:
            has_graph = True
        elif number == 1 and isinstance(value, int):
            ir_version = value
        elif isinstance(value, tuple):
            if number == 2:
                producer = _text(data, value)
            elif number == 8:
                domain, version = "", 0
                for key, item in message_fields(data, *value):
                    if key == 1 and isinstance(item, tuple):
                        domain = _text(data, item)
                    elif key == 2 and isinstance(item, int):
                        version = item
                opsets["" if domain == "ai.onnx" else domain] = version
            elif number == 14:
                entry = message_strings(data, value)
                metadata[entry.get(1, "")] = entry.get(2, "")
            elif number == 25:
                entry = message_strings(data, value, (1, 10))
                functions.append((entry.get(10, ""), entry.get(1, "")))
    if not has_graph or not opsets:
        raise ValueError("it holds no graph" if not has_graph else "it imports no operators")
    return OnnxHeader(ir_version, producer, opsets, tuple(functions), metadata)


def message_fields(
    data: mmap.mmap, start: int, end: int
) -> Iterator[tuple[int, int | tuple[int, int]]]:
    """Yield (field number, number or (start, end) of its bytes) of one message."""
    position = start
    while position < end:
        tag, position = _varint(data, position, end)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, position = _varint(data, position, end)
            yield number, value
            continue
        if kind == _BYTES:
            length, position = _varint(data, position, end)
        elif kind in (_FIXED32, _FIXED64):
            length = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError("no protobuf message")
        if position + length > end:
            if number in _KNOWN_FIELDS:
                raise _TruncatedError(f"{position + length} bytes expected, {end} found")
            raise ValueError("no protobuf message")
        if kind == _BYTES:
            yield number, (position, position + length)
        position += length


def _varint(data: mmap.mmap, position: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= end:
            raise _TruncatedError("it ends within a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("no protobuf message")


def message_strings(
    data: mmap.mmap, span: tuple[int, int], wanted: tuple[int, ...] = (1, 2)
) -> dict[int, str]:
    """Return the texts in the wanted fields of one message, by field number."""
    return {
        number: _text(data, value)
        for number, value in message_fields(data, *span)
        if number in wanted and isinstance(value, tuple)
    }


def _text(data: mmap.mmap, span: tuple[int, int]) -> str:
    return data[span[0] : span[1]].decode("utf-8")
