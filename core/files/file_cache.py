"""Files kept for this user by what they were made from: what was exported once opens at once.

An entry is an ONNX file and a record that names it with its SHA-256. The file is written first and
the record moved into place after it, so a concurrent reader gets the old pair or the new one. An
entry that is damaged, of another key, or not of this user is no entry.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
from collections.abc import Callable
from pathlib import Path

from ..errors import NystraError
from .ownership import is_trusted, require_own_folder
from .reading import file_sha256
from .scratch import scratch_folder
from .temporary import lock
from .user_cache import (
    CACHE_VARIABLE,
    home,
    put_file,
    read_record,
    write_record,
)
from .writing import make_folder

MOST_BYTES = 4 << 30
"""Largest size of all files of the cache; those that were not used for longest are removed."""


def folder(name: str) -> Path:
    """Return a folder of files below that of the user's cache, created if missing.

    Raises:
        NystraError: It cannot be created or written, or belongs to another user.
    """
    place = home() / name
    make_folder(place)
    require_own_folder(place, f"choose your own folder with {CACHE_VARIABLE}")
    return place


def file_of(name: str, key: str, write: Callable[[Path], None]) -> Path:
    """Return the file of a key, which is written now if it is not there.

    Processes that need the same file at the same time wait for the one that writes it. Where no
    cache can be written the file is kept until this process ends.

    Args:
        name: The name of the folder.
        key: From `user_cache.key_of`.
        write: Writes the model file to a path.

    Raises:
        NystraError: What ``write`` raises, or no file can be written.
    """
    try:
        place = folder(name)
    except NystraError:
        place = _until_the_end()
    lock_file = place / f"{key}.lock"
    lock_file.touch()
    with lock(lock_file):
        try:
            return _find(place, key) or _write(place, key, write)
        finally:
            with contextlib.suppress(OSError):  # who waits for it may write the same once more
                lock_file.unlink()


@functools.cache
def _until_the_end() -> Path:
    """Return a folder that is removed when this process ends."""
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(scratch_folder())


def _find(place: Path, key: str) -> Path | None:
    """Return the file of an entry, or None if there is none that is complete and ours."""
    document = read_record(_record(place, key))
    name, expected = document.get("file"), document.get("sha256")
    if document.get("key") != key or name != f"{key}.{str(expected)[:16]}.onnx":
        return None
    path = place / str(name)
    try:
        if not is_trusted(path) or file_sha256(path) != expected:
            return None
        os.utime(path)  # for `_trim`
    except (OSError, NystraError):
        return None
    return path


def _write(place: Path, key: str, write: Callable[[Path], None]) -> Path:
    with scratch_folder() as scratch:
        model = scratch / "model.onnx"
        write(model)
        target, digest = put_file(place, key, model, ".onnx")
    write_record(_record(place, key), {"key": key, "file": target.name, "sha256": digest})
    _trim(place, target)
    return target


def _trim(place: Path, newest: Path) -> None:
    """Remove files that were not used for longest, until the others are small enough."""
    files = []
    for path in place.glob("*.onnx"):
        with contextlib.suppress(OSError):  # another process has just removed it
            status = path.stat()
            files.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= MOST_BYTES:
            return
        if path != newest:
            total -= size
            key = path.name.partition(".")[0]
            for old in (*place.glob(f"{key}.*json"), path):
                with contextlib.suppress(OSError):
                    old.unlink()


def _record(place: Path, key: str) -> Path:
    return place / f"{key}.json"
