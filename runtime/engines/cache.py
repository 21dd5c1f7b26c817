"""Engines this machine built, and why only those are loaded.

Deserializing an engine is running native code. So an engine is loaded only from the cache of this
user on this machine, when its SHA-256 is the recorded one and the record bears a seal (HMAC-SHA256)
made with a secret that never leaves the cache. A file copied into the cache by name does not pass.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from ...plugins.errors import NystraError
from ..files.writing import atomic_path, file_sha256, make_folder
from .record import EngineRecord

CACHE_VARIABLE = "NYSTRA_CACHE_DIR"
"""The environment variable that names the cache; else ``nystra`` in the user's cache folder."""


def cache_folder() -> Path:
    """Return the folder of the engines, made if it is not there.

    Raises:
        NystraError: It cannot be made.
    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get(CACHE_VARIABLE) or Path(home, "nystra"), "engines")
    make_folder(folder)
    return folder


def store(record: EngineRecord, engine: Path) -> Path:
    """Put an engine into the cache; return its path there.

    Args:
        record: Its record; the engine's name, hash and the seal are filled in.
        engine: The file, which is copied.

    Raises:
        NystraError: The cache cannot be written.
    """
    folder = cache_folder()
    target = folder / f"{record.key}.engine"
    with atomic_path(target) as temporary:
        shutil.copyfile(engine, temporary)
    record.engine = target.name
    record.sha256 = file_sha256(target)
    record.seal = _seal(record)
    record.write(EngineRecord.path_for(target))
    return target


def find(key: str) -> tuple[Path, EngineRecord] | None:
    """Return the engine of a key and its record, checked, or None where there is none.

    Raises:
        NystraError: There is one that is not to be trusted.
    """
    path = cache_folder() / f"{key}.engine"
    if not path.is_file():
        return None
    record = EngineRecord.read(EngineRecord.path_for(path))
    verify(path, record)
    if record.key != key:
        raise NystraError(f"the engine {path} is not what its name says: delete it and build again")
    return path, record


def every() -> Iterator[tuple[Path, EngineRecord]]:
    """Yield the engines of the cache that can be trusted, the newest first."""
    files = sorted(cache_folder().glob("*.engine"), key=os.path.getmtime, reverse=True)
    for path in files:
        try:
            record = EngineRecord.read(EngineRecord.path_for(path))
            verify(path, record)
        except NystraError:
            continue
        yield path, record


def verify(path: Path, record: EngineRecord) -> None:
    """Check that this machine's cache wrote the engine and that it is unchanged.

    Raises:
        NystraError: The seal is missing or wrong, or the engine was changed.
    """
    if not hmac.compare_digest(record.seal, _seal(record)):
        raise NystraError(
            f"the engine {path} was not built by this machine's nystra, and loading an engine is "
            "running its code: build it here, or take it with --trust if you trust who made it"
        )
    check_hash(path, record)


def check_hash(path: Path, record: EngineRecord) -> None:
    """Check an engine against the hash in its record.

    Raises:
        NystraError: It was changed.
    """
    got = file_sha256(path)
    if got != record.sha256:
        raise NystraError(
            f"the engine {path} was changed: its SHA-256 is {got}, the record says {record.sha256}"
        )


def _seal(record: EngineRecord) -> str:
    return hmac.new(_secret(), record.unsealed(), hashlib.sha256).hexdigest()


def _secret() -> bytes:
    path = cache_folder() / "secret"
    if not path.exists():
        # Written beside and linked into place: of two processes one wins, and both read it.
        draft = path.with_name(f".secret.{secrets.token_hex(6)}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(32))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_bytes()
