"""Engines this machine built, and why only those are loaded.

Deserializing an engine is running native code. So an engine is loaded only from a folder that this
user alone can write to, when its SHA-256 is the recorded one.

An engine has its own hash in its name and is written first; the record, which names it, is then
moved into place. So the two change together: a concurrent reader gets the old pair or the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from ...core.errors import NystraError
from ...core.files.ownership import require_own_folder
from ...core.files.reading import regular_file
from ...core.files.user_cache import CACHE_VARIABLE, home, put_file
from ...core.files.writing import make_folder
from .record import EngineRecord

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


def store(record: EngineRecord, engine: Path) -> Path:
    """Put an engine into the cache; return its path there.

    Args:
        record: Its record; the engine's name and hash are filled in.
        engine: The file, which is copied.

    Raises:
        NystraError: The cache cannot be written.
    """
    folder = cache_folder()
    target, record.sha256 = put_file(folder, record.key, engine, ".engine")
    record.engine = target.name
    record.write(_record_path(folder, record.key))
    _remove_orphans(folder)
    return target


def find(key: str) -> tuple[Path, EngineRecord] | None:
    """Return the engine of a key and its record, or None if there is none.

    Raises:
        NystraError: There is one that cannot be used.
    """
    folder = cache_folder()
    path = _record_path(folder, key)
    if not path.is_file():
        return None
    record = EngineRecord.read(path)
    engine = folder / record.engine
    if not engine.is_file():
        return None
    read(engine, record)
    if record.key != key:
        raise NystraError(
            f"{path} is the record of another engine than its name says: delete it and build again"
        )
    return engine, record


def every() -> Iterator[tuple[Path, EngineRecord]]:
    """Yield the engines of the cache and their records, the newest first; they are not read."""
    folder = cache_folder()
    for path in sorted(folder.glob("*.engine.json"), key=_modified, reverse=True):
        with contextlib.suppress(NystraError):
            record = EngineRecord.read(path)
            if (folder / record.engine).is_file():
                yield folder / record.engine, record


def read(path: Path, record: EngineRecord) -> bytes:
    """Return an engine, which is that of its record.

    Raises:
        NystraError: It was changed.
    """
    data = regular_file(path, "the engine").read_bytes()
    got = hashlib.sha256(data).hexdigest()
    if got != record.sha256:
        raise NystraError(
            f"the engine {path} was changed: its SHA-256 is {got}, the record says {record.sha256}"
        )
    return data


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
    named = set()
    for path in folder.glob("*.engine.json"):
        with contextlib.suppress(NystraError):
            named.add(EngineRecord.read(path).engine)
    for path in folder.glob("*.engine"):
        if path.name not in named and time.time() - _modified(path) > _ORPHAN_SECONDS:
            with contextlib.suppress(OSError):
                path.unlink()
