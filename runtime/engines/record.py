"""The record of an engine: the JSON file next to it, and the key to find it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ...core.errors import NystraError
from ...core.files.writing import atomic_write_bytes
from ...core.json_records import is_whole, require_keys, require_version, shown
from ...core.json_text import stable_json
from ...core.plain_text import is_plain_name
from ...core.strict_json import read_json
from .profile import Profile

SCHEMA_VERSION = 2
_LARGEST_SIDE = 2**31 - 1


@dataclass
class EngineRecord:
    """The content of ``<engine>.json`` next to an engine.

    Attributes:
        engine: Name of the engine file.
        sha256: Its SHA-256.
        backend: ``tensorrt`` or ``tensorrt-rtx``.
        version: Full version of the builder.
        model: Name of the model file.
        hashes: SHA-256 of ``model``, ``library`` and ``data <location>`` for each data file.
        library: Name of the plugin library, or empty.
        profile: Input name -> smallest, best and largest shape.
        targets: The GPUs that TensorRT-RTX built for; empty: the device of the machine.
        device: Name, capability and CUDA of the GPU it was built on; empty: none.
        flags: Value of `toolkit.flags_at` when it was built.
        plugins: Names of the nodes that are plugins.
        schema_version: Version of this layout.
    """

    engine: str = ""
    sha256: str = ""
    backend: str = ""
    version: str = ""
    model: str = ""
    hashes: dict[str, str] = field(default_factory=dict)
    library: str = ""
    profile: Profile = field(default_factory=dict)
    targets: list[str] = field(default_factory=list)
    device: dict[str, Any] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    plugins: list[str] = field(default_factory=list)
    schema_version: int = SCHEMA_VERSION

    @staticmethod
    def path_for(engine: str | os.PathLike[str]) -> Path:
        """Return where the record of an engine is."""
        return Path(f"{os.fspath(engine)}.json")

    @property
    def key(self) -> str:
        """SHA-256 of everything that the engine depends on.

        Of model and library it includes the contents and not the names, of a data file the contents
        and the location in the model. The engine itself is left out.
        """
        parts = {
            "backend": self.backend,
            "version": self.version,
            "files": self.hashes,
            "profile": self.profile,
            "targets": sorted(self.targets),
            "device": self.device,
            "flags": sorted(self.flags),
        }
        return hashlib.sha256(stable_json(parts)).hexdigest()

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the record: the same content gives the same bytes.

        Raises:
            NystraError: The file cannot be written.
        """
        atomic_write_bytes(path, self.as_json())

    def as_json(self) -> bytes:
        """Return the record as bytes: the same for the same content."""
        return stable_json(asdict(self))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> EngineRecord:
        """Read a record.

        Raises:
            NystraError: The file is missing, no record, or of another schema version.
        """
        value = read_json(path, "the record")
        where = f"the record {path}"
        value = require_version(value, where, SCHEMA_VERSION, "build the engine again")
        _check_types(where, value)
        profile = {
            name: tuple(tuple(shape) for shape in row) for name, row in value["profile"].items()
        }
        return cls(**{**value, "profile": profile})


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _are_texts(value: list[Any]) -> bool:
    return all(isinstance(item, str) for item in value)


def _are_shapes(row: Any) -> bool:
    """Whether a value is the three shapes that a profile has for an input."""
    return (
        isinstance(row, list)
        and len(row) == 3
        and all(isinstance(shape, list) for shape in row)
        and all(is_whole(side) and 0 < side <= _LARGEST_SIDE for shape in row for side in shape)
    )


def _is_file_name(name: str) -> bool:
    return name == Path(name).name and name.isprintable()


def _is_name(value: Any) -> bool:
    """Whether a value is a plain name, or nothing."""
    return isinstance(value, str) and (value == "" or is_plain_name(value))


_VERSION = re.compile(r"[\w+-]*(\.[\w+-]+)*(/[\w+-]+)*")
"""Such as ``2026.4.1-22982-e213a147257-releases/2026/4``: what is before the first dot names a
library and is a word."""

_FITS: dict[str, Callable[[Any], bool]] = {
    "engine": _is_file_name,
    "model": _is_file_name,
    "library": _is_file_name,
    "backend": _is_name,
    "version": lambda version: _VERSION.fullmatch(version) is not None,
    "device": lambda device: _is_name(device.get("name", "")),
    "sha256": _is_hash,
    "hashes": lambda hashes: all(map(_is_hash, hashes.values())),
    "profile": lambda profile: all(map(_are_shapes, profile.values())),
    "targets": _are_texts,
    "flags": _are_texts,
    "plugins": _are_texts,
}
"""Checks of the values of a record, beyond their types."""


def _check_types(where: str, value: dict[str, Any]) -> None:
    kinds = {item.name: type(getattr(EngineRecord(), item.name)) for item in fields(EngineRecord)}
    require_keys(value, where, kinds, kinds)
    wrong = sorted(name for name, kind in kinds.items() if not isinstance(value[name], kind))
    wrong = wrong or [name for name, fits in _FITS.items() if not fits(value[name])]
    if wrong:
        got = ", ".join(f"{name} {shown(value[name])}" for name in wrong)
        raise NystraError(f"{where} has keys of the wrong type or form: {got}")
