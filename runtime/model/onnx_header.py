"""The header of an ONNX file, read without onnx or onnxruntime.

Only the outermost fields of the protobuf message ``ModelProto`` are read (field numbers of
onnx.proto); the graph is skipped by its length. That is enough to determine whether a file is ONNX
at all, whether it is truncated, which operator domains it imports, and its metadata.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...core.errors import NystraError
from ...core.files.reading import regular_file
from ...plugins.domain import DOMAIN
from .protobuf import TruncatedError, message_fields, message_strings, text

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
    with opened_model(path) as data:
        return _parse(data)


@contextmanager
def opened_model(path: str | os.PathLike[str]) -> Iterator[mmap.mmap]:
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
    except TruncatedError as error:
        raise NystraError(
            f"{file} is a truncated ONNX file: {error}. Copy or export it again."
        ) from error
    except ValueError as error:
        raise NystraError(
            f"{file} is not an ONNX file ({error}): expected a file written by nystra-export"
        ) from error


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
