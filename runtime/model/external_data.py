"""The data files of a model: wherever a tensor can stand in it, and inside its folder only.

Field numbers of onnx.proto. A tensor is not only an initializer: it is an attribute of a Constant,
stands in the branches of If, Loop and Scan, and in the bodies of functions.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from ...core.errors import NystraError
from ...core.files.reading import regular_file
from .onnx_header import opened_model
from .protobuf import message_fields, message_strings

_DEEPEST = 64
_EXTERNAL_DATA = 13
_FIELDS: dict[str, dict[int, str]] = {
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
    """Return the data files a model's tensors lie in: location in the model -> path.

    Raises:
        NystraError: The model cannot be read, or a location is no regular file in its folder.
    """
    with opened_model(path) as data:
        locations = {
            entry.get(2, "")
            for tensor in _tensors(data)
            for number, value in message_fields(data, *tensor)
            if number == _EXTERNAL_DATA and isinstance(value, tuple)
            if (entry := message_strings(data, value)).get(1) == "location"
        }
    return {location: _inside(Path(path), location) for location in sorted(locations)}


def _tensors(data: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Yield where the tensors of a model are."""
    stack = [("model", (0, len(data)), 0)]
    while stack:
        kind, span, depth = stack.pop()
        if depth > _DEEPEST:
            raise ValueError(f"its graphs are nested more than {_DEEPEST} deep")
        inner = _FIELDS[kind]
        for number, value in message_fields(data, *span):
            if number not in inner or not isinstance(value, tuple):
                continue
            if inner[number] == "tensor":
                yield value
            else:
                stack.append((inner[number], value, depth + 1))


def _inside(model: Path, location: str) -> Path:
    """Return the path of a location; what leads out of the model's folder is never touched."""
    folder = model.parent
    parts = location.replace("\\", "/").split("/")
    leads_out = not location or "\0" in location or ".." in parts or Path(location).is_absolute()
    if not leads_out:
        resolved = Path(os.path.realpath(folder / location))
        leads_out = not resolved.is_relative_to(os.path.realpath(folder))
    if leads_out:
        raise NystraError(
            f"{model} wants the data file {location!r}, which is not in its folder: nystra reads "
            "none from elsewhere"
        )
    return regular_file(folder / location, "the data file")
