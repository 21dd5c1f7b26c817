"""Reading and writing protobuf messages without protobuf: their fields by number.

The format: every field is a number (its own number and the kind of what follows), then a number of
seven bits a byte, four or eight bytes, or a length and so many bytes.
"""

from __future__ import annotations

import mmap
from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

Buffer = bytes | mmap.mmap

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Kinds of fields."""

_ANY = range(1, 2**29)
_FIXED = {FIXED64: 8, FIXED32: 4}


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
    data: Buffer, start: int = 0, end: int | None = None, known: Container[int] = _ANY
) -> Iterator[Field]:
    """Yield the fields of the message between two places.

    Args:
        data: The bytes that contain it.
        start: Where it begins.
        end: Where it ends; None: with the data.
        known: Field numbers of such a message: a field of another number that ends beyond the
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
            if number in known:
                raise TruncatedError(f"{position} bytes expected, {end} found")
            raise ValueError("not a protobuf message")
        yield Field(number, kind, begin, position)


def message_fields(
    data: Buffer, start: int, end: int, known: Container[int] = _ANY
) -> Iterator[tuple[int, int | tuple[int, int]]]:
    """Yield number and value of the fields that are not fixed numbers; of bytes (start, end).

    Args and errors are those of `fields`.
    """
    for number, kind, begin, after in fields(data, start, end, known):
        if kind == VARINT:
            yield number, _read(data, begin, after)[0]
        elif kind == BYTES:
            yield number, (begin, after)


def message_strings(
    data: Buffer, span: tuple[int, int], wanted: tuple[int, ...] = (1, 2)
) -> dict[int, str]:
    """Return the texts in the wanted fields of one message, by field number."""
    return {
        number: text(data, value)
        for number, value in message_fields(data, *span)
        if number in wanted and isinstance(value, tuple)
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
