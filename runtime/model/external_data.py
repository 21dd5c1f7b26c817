"""The tensors of a model anywhere in it: their data files, in its folder only, and one digest.

Field numbers of onnx.proto. A tensor is not only an initializer: it is an attribute of a Constant,
stands in the branches of If, Loop and Scan, and in the bodies of functions.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Container, Iterator
from pathlib import Path

from ...core.errors import NystraError
from ...core.files.reading import regular_file
from .onnx_header import BYTES, fields, message_fields, message_strings, open_model

Span = tuple[int, int]
"""Where a message begins and ends in the bytes of a model file."""

_DEEPEST = 64
_EXTERNAL_DATA = 13
FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor",
        10: "tensor",
        6: "graph",
        11: "graph",
        22: "sparse tensor",
        23: "sparse tensor",
    },
    "sparse tensor": {1: "tensor", 2: "tensor"},
}
"""Message -> number of a field -> the message in it, of all that can hold a tensor."""


def external_files(path: str | os.PathLike[str]) -> dict[str, Path]:
    """Return the data files of a model's tensors: location in the model -> path.

    Raises:
        NystraError: The model cannot be read, or a location is not a regular file in its folder.
    """
    with open_model(path) as data:
        locations = {
            value
            for tensor in tensors(data)
            for key, value in external_entries(data, tensor)
            if key == "location"
        }
    return {location: data_file(path, location) for location in sorted(locations)}


def check_data_files(path: str | os.PathLike[str]) -> None:
    """Refuse a model with data outside of its folder: not every release of an engine does.

    Raises:
        NystraError: As `external_files`.
    """
    with open_model(path) as data:
        named = data.find(b"location") >= 0  # faster than to look at every tensor
    if named:
        external_files(path)


def external_entries(data: mmap.mmap, tensor: Span) -> list[tuple[str, str]]:
    """Return the external entries of a tensor: ``location``, ``offset``, ``length``; []: none."""
    entries = [
        message_strings(data, value)
        for number, value in message_fields(data, *tensor)
        if number == _EXTERNAL_DATA and isinstance(value, tuple)
    ]
    return [(entry.get(1, ""), entry.get(2, "")) for entry in entries]


def tensors(data: mmap.mmap, *, without: Container[str] = ()) -> Iterator[Span]:
    """Yield where the tensors of a model are; arguments as for `messages`."""
    return messages(data, "tensor", without)


def messages(data: mmap.mmap, message_kind: str, without: Container[str] = ()) -> Iterator[Span]:
    """Yield where the messages of a kind are: in graphs, branches, attributes and functions.

    Args:
        data: The result of `open_model`.
        message_kind: The kind: ``tensor`` or ``node``.
        without: Kinds of messages that are skipped: ``function``, ``training``, ...
    """
    stack: list[tuple[str, Span, int]] = [("model", (0, len(data)), 0)]
    while stack:
        kind, span, depth = stack.pop()
        if depth > _DEEPEST:
            raise ValueError(f"its graphs are nested more than {_DEEPEST} levels deep")
        inner = FIELDS[kind]
        for number, value in message_fields(data, *span):
            kind_inside = inner.get(number)
            if kind_inside is None or kind_inside in without or not isinstance(value, tuple):
                continue
            if kind_inside == message_kind:
                yield value
            if kind_inside != "tensor":
                stack.append((kind_inside, value, depth + 1))


def data_file(model: str | os.PathLike[str], location: str) -> Path:
    """Return the path of a location; files outside of the model's folder are never accessed.

    Raises:
        NystraError: It leads out of the folder, or is not a regular file.
    """
    folder = Path(model).parent
    parts = location.replace("\\", "/").split("/")
    leads_out = not location or "\0" in location or ".." in parts or Path(location).is_absolute()
    if not leads_out:
        resolved = Path(os.path.realpath(folder / location))
        leads_out = not resolved.is_relative_to(os.path.realpath(folder))
    if leads_out:
        raise NystraError(
            f"{model} refers to the data file {location!r}, which is not in its folder: nystra "
            "reads data files from the model's folder only"
        )
    return regular_file(folder / location, "the data file")


_NAME, _RAW_DATA = 8, 9
_STORAGE = (12, 13, 14)
"""Fields that do not affect the values."""

_CHUNK = 1 << 20


def weights_digest(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of the tensors of a model's graph: names, types, shapes and values.

    The order of the tensors, and whether they are in the model file or in a data file next to it,
    make no difference. Constants of function bodies are left out: they belong to the operators, not
    to the network.

    Raises:
        NystraError: The file or its data file cannot be read.
    """
    with open_model(path) as data:
        digests = sorted(
            _tensor_digest(Path(path), data, span) for span in tensors(data, without=("function",))
        )
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _tensor_digest(model: Path, data: mmap.mmap, span: Span) -> bytes:
    digest = hashlib.sha256(message_strings(data, span, (_NAME,)).get(_NAME, "").encode())
    for field in fields(data, *span):
        if field.number in (_NAME, *_STORAGE):
            continue
        digest.update(f"|{field.number}.{field.kind}:".encode())
        for part in _parts(data, field.start, field.end):
            digest.update(part)
    if stored := dict(external_entries(data, span)):
        digest.update(f"|{_RAW_DATA}.{BYTES}:".encode())
        for part in _read_stored_parts(data_file(model, stored.get("location", "")), stored):
            digest.update(part)
    return digest.digest()


def _parts(data: mmap.mmap, start: int, end: int) -> Iterator[bytes]:
    for place in range(start, end, _CHUNK):
        yield data[place : min(place + _CHUNK, end)]


def _read_stored_parts(file: Path, stored: dict[str, str]) -> Iterator[bytes]:
    try:
        offset = int(stored.get("offset") or 0)
        remaining = int(stored.get("length") or file.stat().st_size - offset)
        with file.open("rb") as stream:
            stream.seek(offset)
            while remaining > 0 and (part := stream.read(min(_CHUNK, remaining))):
                remaining -= len(part)
                yield part
    except (OSError, ValueError, OverflowError) as error:
        raise NystraError(f"cannot read the data file {file}: {error}") from error
