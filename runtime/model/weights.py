"""One digest of the weights of a model file that does not depend on how they are stored.

Field numbers of onnx.proto: ``TensorProto.name`` 8, ``.raw_data`` 9, ``.doc_string`` 12,
``.external_data`` 13, ``.data_location`` 14.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from ...core.errors import NystraError
from .external_data import Span, data_file, external_entries, tensors
from .onnx_header import BYTES, fields, message_strings, opened_model

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
    with opened_model(path) as data:
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
        for part in _stored_parts(data_file(model, stored.get("location", "")), stored):
            digest.update(part)
    return digest.digest()


def _parts(data: mmap.mmap, start: int, end: int) -> Iterator[bytes]:
    for place in range(start, end, _CHUNK):
        yield data[place : min(place + _CHUNK, end)]


def _stored_parts(file: Path, stored: dict[str, str]) -> Iterator[bytes]:
    """Yield the part of a data file that a tensor uses: all of it by default."""
    try:
        offset = int(stored.get("offset") or 0)
        left = int(stored.get("length") or file.stat().st_size - offset)
        with file.open("rb") as stream:
            stream.seek(offset)
            while left > 0 and (part := stream.read(min(_CHUNK, left))):
                left -= len(part)
                yield part
    except (OSError, ValueError, OverflowError) as error:
        raise NystraError(f"cannot read the data file {file}: {error}") from error
