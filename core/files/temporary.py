"""Temporary files: hidden, next to their target, with the process that owns them in the name.

The next process that writes to a folder removes what a killed one left in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from .ownership import is_mine

_NAME = re.compile(r"\..*\.nystra-([0-9a-f]{8})-(\d{1,18})-[0-9a-f]{8}(\..*)?", re.DOTALL)

_MACHINE_ID = Path("/etc/machine-id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")

_folders: set[Path] = set()


def _host() -> str:
    """Return where process ids mean what they mean here: a machine, and a PID namespace of it.

    Containers may share the name of a machine and a folder, but each has processes of its own.
    """
    with contextlib.suppress(OSError):
        return _hash_of(platform.node(), _machine_id(), str(_PID_NAMESPACE.stat().st_ino))
    return _hash_of(platform.node(), _machine_id())


def _hash_of(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


@cache
def _machine_id() -> str:
    try:
        return _MACHINE_ID.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def temporary_path(target: Path) -> Path:
    """Return a new hidden name in the target's folder, with its suffix and the writing process."""
    _folders.add(target.parent.absolute())
    owner = f"nystra-{_host()}-{os.getpid()}-{secrets.token_hex(4)}"
    # Shorter than 255 bytes, and without what the system's encoding cannot say, so that every
    # library can open the file.
    stem = os.fsencode(target.stem)[:80].decode(sys.getfilesystemencoding(), "ignore")
    return target.with_name(f".{stem}.{owner}{target.suffix}")


@cache
def remove_leftovers(folder: Path) -> None:
    """Remove the files and folders of dead processes in a folder, once per process.

    Those of another user, or of a process that may still run, are left alone; of a link only the
    link is removed.
    """
    _remove(folder, _is_dead)


def is_temporary(path: str | os.PathLike[str]) -> bool:
    """Return whether a path has a name of `temporary_path`, or is in a folder of such a name."""
    return any(_NAME.fullmatch(part) for part in Path(path).parts)


def remove_own() -> None:
    """Remove the temporary files of this process, which is about to end."""
    own = (_host(), str(os.getpid()))
    for folder in list(_folders):
        _remove(folder, lambda owner: owner == own)


def _remove(folder: Path, is_stale: Callable[[tuple[str, str]], bool]) -> None:
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            match = _NAME.fullmatch(entry.name)
            if match is None or not is_stale((match[1], match[2])) or not is_mine(Path(entry.path)):
                continue
            remove_entry(Path(entry.path))


def remove_entry(path: Path) -> None:
    """Remove a file, a link or a folder with its content, if that is possible."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _is_dead(owner: tuple[str, str]) -> bool:
    """Whether a process has ended; False where that cannot be asked.

    That is on Windows, of other machines (a shared folder), and of and in other PID namespaces.
    """
    host, process = owner
    if sys.platform == "win32" or host != _host():
        return False
    if sys.platform == "linux" and not _PID_NAMESPACE.exists():  # without /proc
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Keep out others that lock the same file or folder, where the system has such locks.

    Args:
        path: An existing file or folder.
    """
    if fcntl is None:
        yield
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a network file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
