"""The cache of engines: a folder for each key, with the engine and its record.

Deserializing an engine is running native code, so the cache is a folder of this user alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ...core.errors import NystraError
from ...core.files.ownership import require_own_folder
from ...core.files.reading import regular_file
from ...core.files.user_cache import CACHE_VARIABLE, home, key_of
from ...core.files.writing import atomic_folder, file_set, make_folder
from ...core.json_text import read_json, require_keys, require_version, stable_json
from .model import Profile

SCHEMA_VERSION = 4
"""Raised too when engines are built with other settings, so that older ones are not used."""

_ENGINE = "engine"
_ADVICE = f"delete it, or choose your own folder with {CACHE_VARIABLE}; see docs/gpu.md"


@dataclass
class EngineRecord:
    """The content of ``<engine>.json`` next to an engine.

    Attributes:
        backend: ``tensorrt``, ``tensorrt-rtx`` or ``openvino``.
        version: Full version of the builder.
        model: Name of the model file.
        hashes: SHA-256 of ``model``, ``library`` and ``data <location>`` for each data file.
        profile: Input name -> smallest, best and largest shape.
        targets: The GPUs that TensorRT-RTX built for; empty: the device of the machine.
        device: Name, capability and CUDA of the GPU it was built on; empty: none.
        flags: What was chosen for its build.
        plugins: Names of the nodes that are plugins.
        schema_version: Version of this layout.
    """

    backend: str = ""
    version: str = ""
    model: str = ""
    hashes: dict[str, str] = field(default_factory=dict)
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
        """SHA-256 of all that the engine depends on: contents, not names of model and library."""
        return key_of(asdict(replace(self, model="", plugins=[])))

    def as_json(self) -> bytes:
        """Return the record as bytes: the same for the same content."""
        return stable_json(asdict(self))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> EngineRecord:
        """Read a record.

        Raises:
            NystraError: The file is missing, no record, or of another schema version.
        """
        where = f"the record {path}"
        value = read_json(path, "the record")
        value = require_version(value, where, SCHEMA_VERSION, "build the engine again")
        kinds = {item.name: type(getattr(cls(), item.name)) for item in fields(cls)}
        require_keys(value, where, kinds, kinds)
        wrong = [name for name, kind in kinds.items() if not isinstance(value[name], kind)]
        if wrong:
            raise NystraError(f"{where} has keys of the wrong type: {', '.join(wrong)}")
        try:
            value["profile"] = {name: _row(row) for name, row in value["profile"].items()}
        except (TypeError, ValueError) as error:
            raise NystraError(f"{where} has a profile without shapes: {error}") from error
        return cls(**value)


def _row(shapes: Any) -> tuple[tuple[int, ...], ...]:
    minimum, best, maximum = (tuple(map(int, shape)) for shape in shapes)
    return minimum, best, maximum


@dataclass(frozen=True)
class Engine:
    """A finished engine, in the cache or a copy, with its record next to it.

    Attributes:
        path: Where it is.
        record: Its record.
        fresh: It was built now, not found.
    """

    path: Path
    record: EngineRecord
    fresh: bool = False

    @classmethod
    def beside(cls, path: Path) -> Engine:
        """Return an engine that has its record next to it.

        Raises:
            NystraError: One of the two is missing.
        """
        engine = regular_file(path, "the engine")
        return cls(engine, EngineRecord.read(EngineRecord.path_for(path)))

    @property
    def name(self) -> str:
        """Name of a file for it: model, builder and target."""
        target = "-".join(self.record.targets) or str(self.record.device.get("capability", "any"))
        name = f"{Path(self.record.model).stem}_{self.record.backend}_{target}.engine"
        return re.sub(r"[/\\:]", "_", name)

    def copy_to(self, output: Path) -> Engine:
        """Copy it and its record out of the cache; return the copy.

        Raises:
            NystraError: The files cannot be written.
        """
        with file_set(output) as files:
            shutil.copyfile(self.path, files.temporary(output))
            files.write(EngineRecord.path_for(output), self.record.as_json())
        return replace(self, path=output)


def is_empty() -> bool:
    """Return whether there are no engines; creates no folder."""
    return not any(home().glob(f"engines/*/{_ENGINE}"))


def cache_folder() -> Path:
    """Return the folder of the engines, created if missing, accessible to this user only.

    Raises:
        NystraError: It cannot be created, or other users own it or can write to it.
    """
    folder = home() / "engines"
    make_folder(folder.parent)
    for place in (folder.parent.resolve(), folder):
        require_own_folder(place, _ADVICE)
    folder.mkdir(mode=0o700, exist_ok=True)
    mode = stat.S_IMODE(folder.stat().st_mode)
    if os.name == "posix" and mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NystraError(f"other users could put an engine into {folder}, native code: {_ADVICE}")
    folder.chmod(0o700)
    return folder


def store(record: EngineRecord, engine: Path, *, fresh: bool = False) -> Engine:
    """Copy an engine into the cache, in place of one of the same key.

    Raises:
        NystraError: The cache cannot be written.
    """
    place = cache_folder() / record.key
    with atomic_folder(place, overwrite=True) as folder:
        shutil.copyfile(engine, folder / _ENGINE)
        EngineRecord.path_for(folder / _ENGINE).write_bytes(record.as_json())
    return Engine(place / _ENGINE, record, fresh)


def find(key: str) -> Engine | None:
    """Return the engine of a key, or None if there is none.

    Raises:
        NystraError: It has no record, or a damaged one.
    """
    path = cache_folder() / key / _ENGINE
    return Engine.beside(path) if path.is_file() else None


def every() -> list[Engine]:
    """Return the engines of the cache that have a record, the newest first; they are not read."""
    engines = []
    for path in cache_folder().glob(f"[0-9a-f]*/{_ENGINE}"):
        # Another process may have just removed it.
        with contextlib.suppress(OSError, NystraError):
            engines.append((path.stat().st_mtime, Engine.beside(path)))
    engines.sort(key=lambda row: row[0], reverse=True)
    return [engine for _, engine in engines]
