"""Engines this machine built, and why only those are loaded.

Deserializing an engine is running native code. So an engine is loaded only from a folder that this
user alone can write to, when its SHA-256 is the recorded one.

An engine has its own hash in its name and is written first; the record, which has the hash, is then
moved into place. So the two change together: a concurrent reader gets the old pair or the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ...core.errors import NystraError
from ...core.files.ownership import require_own_folder
from ...core.files.reading import regular_file
from ...core.files.user_cache import CACHE_VARIABLE, home, key_of, put_file
from ...core.files.writing import (
    atomic_write_bytes,
    check_writable_folder,
    file_set,
    make_folder,
)
from ...core.json_text import is_whole, read_json, require_keys, require_version, shown, stable_json
from ...core.plain_text import is_plain_name
from .model import Profile

SCHEMA_VERSION = 3
"""Raised too when engines are built with other settings, so that older ones are not used."""

_LARGEST_SIDE = 2**31 - 1


@dataclass
class EngineRecord:
    """The content of ``<engine>.json`` next to an engine.

    Attributes:
        sha256: That of the engine.
        backend: ``tensorrt`` or ``tensorrt-rtx``.
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

    sha256: str = ""
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
        """SHA-256 of everything that the engine depends on.

        Of model and library it includes the contents and not the names, of a data file the contents
        and the location in the model. The engine itself is left out.
        """
        parts = asdict(replace(self, sha256="", model="", plugins=[]))
        return key_of(parts)

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


@dataclass(frozen=True)
class Engine:
    """A finished engine.

    Attributes:
        path: Where it is: in the cache, or a copy with its record next to it.
        record: Its record.
        fresh: It was built now, not found.
    """

    path: Path
    record: EngineRecord
    fresh: bool = False

    @classmethod
    def beside(cls, path: Path) -> Engine:
        """Return a copy that has its record next to it.

        Raises:
            NystraError: There is no record, or the engine was changed.
        """
        engine = cls(path, EngineRecord.read(EngineRecord.path_for(path)))
        engine.read()
        return engine

    @property
    def name(self) -> str:
        """Name of a file for it: model, builder and target."""
        target = "-".join(self.record.targets) or self.record.device.get("capability", "any")
        return f"{Path(self.record.model).stem}_{self.record.backend}_{target}.engine"

    def read(self) -> bytes:
        """Return its bytes, which are those of its record.

        Raises:
            NystraError: It was changed.
        """
        data = regular_file(self.path, "the engine").read_bytes()
        got, expected = hashlib.sha256(data).hexdigest(), self.record.sha256
        if got != expected:
            raise NystraError(
                f"the engine {self.path} was changed: its SHA-256 is {got}, the record says "
                f"{expected}"
            )
        return data

    def copied(self, output: Path) -> Engine:
        """Copy it and its record out of the cache; return the copy.

        Raises:
            NystraError: The files cannot be written.
        """
        check_writable_folder(output.parent)
        with file_set(output) as files:
            shutil.copyfile(self.path, files.temporary(output))
            files.write(EngineRecord.path_for(output), self.record.as_json())
        return replace(self, path=output)


_HASH = re.compile("[0-9a-f]{64}")
_WORD = re.compile(r"\w*")
_VERSION = re.compile(r"[\w+-]*(\.[\w+-]+)*(/[\w+-]+)*")
"""Such as ``2026.4.1-22982-e213a147257-releases/2026/4``: what is before the first dot names a
library and is a word."""


def _fit(form: re.Pattern[str], values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) and form.fullmatch(value) for value in values)


def _is_file_name(name: str) -> bool:
    return name == Path(name).name and name.isprintable()


def _is_profile(profile: dict[str, Any]) -> bool:
    """Whether every input has three shapes."""
    rows = profile.values()
    if not all(isinstance(row, list) and len(row) == 3 for row in rows):
        return False
    shapes = [shape for row in rows for shape in row]
    return all(isinstance(shape, list) for shape in shapes) and all(
        is_whole(side) and 0 < side <= _LARGEST_SIDE for shape in shapes for side in shape
    )


def _is_device(device: dict[str, Any]) -> bool:
    name = device.get("name", "-")
    return (
        isinstance(name, str)
        and is_plain_name(name)
        and _fit(_WORD, [device.get("capability", "")])
    )


_FITS: dict[str, Callable[[Any], bool]] = {
    "model": _is_file_name,
    "backend": lambda backend: backend == "" or is_plain_name(backend),
    "version": lambda version: _fit(_VERSION, [version]),
    "device": _is_device,
    "sha256": lambda sha256: _fit(_HASH, [sha256]),
    "hashes": lambda hashes: _fit(_HASH, hashes.values()),
    "profile": _is_profile,
    "targets": lambda targets: _fit(_WORD, targets),
    "flags": lambda flags: all(isinstance(flag, str) for flag in flags),
    "plugins": lambda plugins: all(isinstance(plugin, str) for plugin in plugins),
}
"""Checks of the values of a record, beyond their types: they become names of files and text."""


def _check_types(where: str, value: dict[str, Any]) -> None:
    kinds = {item.name: type(getattr(EngineRecord(), item.name)) for item in fields(EngineRecord)}
    require_keys(value, where, kinds, kinds)
    wrong = sorted(name for name, kind in kinds.items() if not isinstance(value[name], kind))
    wrong = wrong or [name for name, fits in _FITS.items() if not fits(value[name])]
    if wrong:
        got = ", ".join(f"{name} {shown(value[name])}" for name in wrong)
        raise NystraError(f"{where} has keys of the wrong type or form: {got}")


_ORPHAN_SECONDS = 3600.0
"""Seconds after which an engine without a record is a leftover; before, its record may still be
written."""


def is_empty() -> bool:
    """Return whether there are no engines; creates no folder."""
    return not any(home().glob("engines/*.engine.json"))


def cache_folder() -> Path:
    """Return the folder of the engines, created if missing, accessible to this user only.

    Raises:
        NystraError: It cannot be created, or other users own it or can write to it.
    """
    folder = home() / "engines"
    make_folder(folder.parent)
    require_own_folder(
        folder.parent.resolve(), f"choose your own folder with {CACHE_VARIABLE}; see docs/gpu.md"
    )
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    make_folder(folder)
    _refuse_foreign(folder)
    if os.name == "posix":
        folder.chmod(0o700)
    return folder


def store(record: EngineRecord, engine: Path, *, fresh: bool = False) -> Engine:
    """Put an engine into the cache.

    Args:
        record: Its record; the hash is filled in.
        engine: The file, which is copied.
        fresh: It was built now.

    Raises:
        NystraError: The cache cannot be written.
    """
    folder = cache_folder()
    target, record.sha256 = put_file(folder, record.key, engine, ".engine")
    atomic_write_bytes(_record_path(folder, record.key), record.as_json())
    _remove_orphans(folder)
    return Engine(target, record, fresh)


def find(key: str) -> Engine | None:
    """Return the engine of a key, or None if there is none.

    Raises:
        NystraError: There is one that cannot be used.
    """
    path = _record_path(cache_folder(), key)
    if not path.is_file():
        return None
    engine = _engine_of(path)
    if not engine.path.is_file():
        return None
    engine.read()
    if engine.record.key != key:
        raise NystraError(
            f"{path} is the record of another engine than its name says: delete it and build again"
        )
    return engine


def every() -> Iterator[Engine]:
    """Yield the engines of the cache, the newest first; they are not read."""
    records = cache_folder().glob("*.engine.json")
    for path in sorted(records, key=_modified, reverse=True):
        with contextlib.suppress(NystraError):
            engine = _engine_of(path)
            if engine.path.is_file():
                yield engine


def _engine_of(path: Path) -> Engine:
    """Return the engine of a record of the cache, as `put_file` names it."""
    record = EngineRecord.read(path)
    return Engine(path.with_name(f"{record.key}.{record.sha256[:16]}.engine"), record)


def _record_path(folder: Path, key: str) -> Path:
    return EngineRecord.path_for(folder / f"{key}.engine")


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:  # another process has just removed it
        return 0.0


def _refuse_foreign(path: Path) -> None:
    """Raise `NystraError` where another user owns a file or folder, or can write to it."""
    if os.name != "posix":
        return
    status, owners = path.stat(), {path.lstat().st_uid, path.stat().st_uid}  # of a link too
    if owners == {os.geteuid()} and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return
    raise NystraError(
        f"{path} belongs to user {status.st_uid} with the mode {stat.S_IMODE(status.st_mode):o}, "
        "so other users could put an engine there, which is executable code: delete it, or "
        f"choose your own folder with {CACHE_VARIABLE}; see docs/gpu.md"
    )


def _remove_orphans(folder: Path) -> None:
    """Remove engines without a record: their process was killed, or a newer one replaced them."""
    named = {engine.path.name for engine in every()}
    for path in folder.glob("*.engine"):
        if path.name not in named and time.time() - _modified(path) > _ORPHAN_SECONDS:
            with contextlib.suppress(OSError):
                path.unlink()
