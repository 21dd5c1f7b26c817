"""A copy of a model file for another program: all its files have names of nystra's own.

The model chooses the names of its data files, and programs that load a folder execute files by
their names (``prestartup_script.py``, ``libtriton_onnxruntime.so``). So the copies are called
`COPY`, ``model.onnx.data``, ``model.onnx.data.1``, ..., and the copied model says so.
"""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import NystraError
from .external_data import FIELDS, external_files
from .onnx_header import BYTES, fields, message, message_strings, open_model, varint

COPY = "model.onnx"
"""Name of the copied model file."""

_ENTRY = "entry"
_INNER = {**FIELDS, "tensor": {13: _ENTRY}}
_CHUNK = 1 << 22

_Part = bytes | tuple[int, int]
"""Bytes of the copy, or where they begin and end in the original."""


@dataclass(frozen=True)
class ModelCopy:
    """What is copied of a model.

    Attributes:
        path: The model file.
        names: Location of a data file in the model -> its name in the copy.
        files: That name -> the data file.
    """

    path: Path
    names: Mapping[str, str]
    files: Mapping[str, Path]

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> ModelCopy:
        """Find the data files of a model.

        Raises:
            NystraError: The model cannot be read, or a data file is not in its folder.
        """
        names: dict[str, str] = {}
        files: dict[str, Path] = {}
        name_of_file: dict[str, str] = {}
        for location, file in external_files(path).items():
            name = f"{COPY}.data" + (f".{len(files)}" if files else "")
            names[location] = name_of_file.setdefault(os.path.realpath(file), name)
            files.setdefault(names[location], file)
        return cls(Path(path), names, files)

    def write(self, folder: Path) -> Path:
        """Write the files into a folder that exists, and return the model there.

        Raises:
            NystraError: The model was changed meanwhile.
        """
        target = folder / COPY
        if self.names:
            self._write_renamed(target)
        else:
            shutil.copyfile(self.path, target)
        for name, file in self.files.items():
            shutil.copyfile(file, folder / name)
        return target

    def _write_renamed(self, target: Path) -> None:
        with open_model(self.path) as data, target.open("wb") as stream:
            parts = self._rename(data, "model", (0, len(data)))
            if parts is None:
                raise NystraError(f"{self.path} was changed while it was copied: try again")
            for part in parts:
                if isinstance(part, bytes):
                    stream.write(part)
                    continue
                for start in range(*part, _CHUNK):
                    stream.write(data[start : min(start + _CHUNK, part[1])])

    def _rename(self, data: mmap.mmap, kind: str, span: tuple[int, int]) -> list[_Part] | None:
        """Return the parts of a message with the new locations; None: it has no location."""
        if kind == _ENTRY:
            entry = message_strings(data, span)
            if entry.get(1) != "location":
                return None
            name = self.names[entry.get(2, "")]
            return [message([(1, BYTES, b"location"), (2, BYTES, name.encode())])]
        parts: list[_Part] = []
        copied = before = span[0]
        for number, wire_type, begin, end in fields(data, *span):
            inner = _INNER[kind].get(number) if wire_type == BYTES else None
            renamed = None if inner is None else self._rename(data, inner, (begin, end))
            if renamed is not None:
                size = sum(len(p) if isinstance(p, bytes) else p[1] - p[0] for p in renamed)
                parts += [
                    (copied, before),
                    varint(number << 3 | BYTES) + varint(size),
                    *renamed,
                ]
                copied = end
            before = end
        return [*parts, (copied, span[1])] if parts else None


def copy_without_functions(path: Path, folder: Path, dropped: Container[tuple[str, str]]) -> Path:
    """Write a model without some of its functions into a folder, with links to its data files.

    Args:
        path: The model.
        folder: A folder that exists.
        dropped: (domain, name) of each function to leave out.

    Raises:
        NystraError: The model or one of its data files cannot be read.
    """
    copy = folder / path.name
    with open_model(path) as data, copy.open("wb") as file:
        start = 0
        for number, kind, begin, end in fields(data):
            named = message_strings(data, (begin, end), (1, 10)) if number == 25 else {}
            if kind != BYTES or (named.get(10, ""), named.get(1, "")) not in dropped:
                file.write(data[start:end])
            start = end
    for location, file_path in external_files(path).items():
        link = folder / location
        if not link.exists():  # a file may be in the model by two spellings of its location
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file_path.resolve())
    return copy
