"""The header of an ONNX file, and protobuf messages by their fields, without onnx or protobuf.

Only the outermost fields of the protobuf message ``ModelProto`` are read (field numbers of
onnx.proto); the graph is skipped by its length. That is enough to determine whether a file is ONNX
at all, whether it is truncated, which operator domains it imports, and its metadata. In a message
every field is a number (its own number and the kind of what follows), then a number of seven bits a
byte, four or eight bytes, or a length and so many bytes.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ...core.errors import NystraError
from ...core.files.kinds import HEAD, FileKind, file_kind
from ...core.files.reading import regular_file
from ...plugins.domain import DOMAIN

Buffer = bytes | mmap.mmap

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Kinds of fields."""

_ANY = range(1, 2**29)
_FIXED = {FIXED64: 8, FIXED32: 4}
_CHECKPOINTS = (".safetensors", ".pth", ".pt", ".ckpt")


class TruncatedError(ValueError):
    """A field reaches beyond the end of its message."""


class Field(NamedTuple):
    """A field in the bytes of its message.

    Attributes:
        number: Its number.
        kind: One of `VARINT`, `FIXED64`, `BYTES`, `FIXED32`.
        start: Where its value begins, after the length of bytes.
        end: Where its value ends.
    """

    number: int
    kind: int
    start: int
    end: int


def fields(
    data: Buffer, start: int = 0, end: int | None = None, allowed: Container[int] = _ANY
) -> Iterator[Field]:
    """Yield the fields of the message between two places.

    Args:
        data: The bytes that contain it.
        start: Where it begins.
        end: Where it ends; None: with the data.
        allowed: Field numbers of such a message: a field of another number that ends beyond the
            message means that the data is something else, not that it is truncated.

    Raises:
        TruncatedError: It is truncated.
        ValueError: It is not a message.
    """
    position, end = start, len(data) if end is None else end
    while position < end:
        tag, position = _read(data, position, end)
        number, kind = tag >> 3, tag & 7
        begin = position
        if kind == VARINT:
            _, position = _read(data, position, end)
        elif kind == BYTES:
            length, begin = _read(data, position, end)
            position = begin + length
        elif kind in _FIXED:
            position += _FIXED[kind]
        else:
            raise ValueError("not a protobuf message")
        if position > end:
            if number in allowed:
                raise TruncatedError(f"{position} bytes expected, {end} found")
            raise ValueError("not a protobuf message")
        yield Field(number, kind, begin, position)


def message_fields(
    data: Buffer, start: int, end: int, allowed: Container[int] = _ANY
) -> Iterator[tuple[int, int | tuple[int, int]]]:
    """Yield number and value of the fields that are not fixed numbers; of bytes (start, end).

    Args and errors are those of `fields`.
    """
    for number, kind, begin, after in fields(data, start, end, allowed):
        if kind == VARINT:
            yield number, _read(data, begin, after)[0]
        elif kind == BYTES:
            yield number, (begin, after)


def message_strings(
    data: Buffer, span: tuple[int, int], numbers: tuple[int, ...] = (1, 2)
) -> dict[int, str]:
    """Return the texts in the wanted fields of one message, by field number."""
    return {
        number: text(data, value)
        for number, value in message_fields(data, *span)
        if number in numbers and isinstance(value, tuple)
    }


def text(data: Buffer, span: tuple[int, int]) -> str:
    """Return the text between two places."""
    return data[span[0] : span[1]].decode("utf-8")


def message(values: Iterable[tuple[int, int, bytes]]) -> bytes:
    """Return the message of some fields: number, kind, and the bytes of the value."""
    parts: list[bytes] = []
    for number, kind, value in values:
        parts.append(varint(number << 3 | kind))
        if kind == BYTES:
            parts.append(varint(len(value)))
        parts.append(value)
    return b"".join(parts)


def _read(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Return the number at a place, seven bits a byte, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= end:
            raise TruncatedError("it ends inside a number")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("not a protobuf message")


def varint(value: int) -> bytes:
    """Return a number as it is written: seven bits a byte, the lowest first."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


_KNOWN_FIELDS = {1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26}


@dataclass(frozen=True)
class OnnxHeader:
    """The content of a model file apart from its graph.

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

    @property
    def has_operators(self) -> bool:
        """Whether the file imports the operators of nystra."""
        return DOMAIN in self.opsets

    @property
    def has_bodies(self) -> bool:
        """Whether it contains ONNX bodies of operators of nystra."""
        return any(domain == DOMAIN for domain, _ in self.functions)


def read_onnx_header(path: str | os.PathLike[str]) -> OnnxHeader:
    """Read the header of a model file.

    Raises:
        NystraError: The file is missing, empty, not ONNX or cut short.
    """
    with open_model(path) as data:
        return _parse(data)


@contextmanager
def open_model(path: str | os.PathLike[str]) -> Iterator[mmap.mmap]:
    """Yield the bytes of a model file; errors in the block become `NystraError`.

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
    except ValueError as error:
        raise NystraError(_no_model(file, error)) from error


def _no_model(file: Path, error: ValueError) -> str:
    with file.open("rb") as stream:
        head = stream.read(HEAD)
    kind = file_kind(head)
    if kind not in (None, FileKind.ONNX):
        return f"{file} is not an ONNX file: it is {kind}"
    if file.suffix.lower() in _CHECKPOINTS:
        return (
            f"{file} is a checkpoint by its name, expected an ONNX file: "
            f"`nystra-export {file} --attn full -o {file.stem}.onnx` writes it"
        )
    if isinstance(error, TruncatedError):
        return f"{file} is a truncated ONNX file: {error}. Copy or export it again."
    if head.startswith(b"PK"):
        return f"{file} is not an ONNX file: it is a zip archive, as checkpoints of PyTorch are"
    return f"{file} is not an ONNX file: {error}"


def _parse(data: mmap.mmap) -> OnnxHeader:
    ir_version, producer, has_graph = 0, "", False
    opsets: dict[str, int] = {}
    functions: list[tuple[str, str]] = []
    metadata: dict[str, str] = {}
    for number, value in message_fields(data, 0, len(data), _KNOWN_FIELDS):
        if number not in _KNOWN_FIELDS:
            raise ValueError(f"unknown field {number}")
        if number == 7:
            has_graph = True
        elif number == 1 and isinstance(value, int):
            ir_version = value
        elif isinstance(value, tuple):
            if number == 2:
                producer = text(data, value)
            elif number == 8:
                domain, version = "", 0
                for key, item in message_fields(data, *value):
                    if key == 1 and isinstance(item, tuple):
                        domain = text(data, item)
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
        raise ValueError("it has no graph" if not has_graph else "it has no opset import")
    return OnnxHeader(ir_version, producer, opsets, tuple(functions), metadata)
