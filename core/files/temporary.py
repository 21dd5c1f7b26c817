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

_HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
_NAME = re.compile(r"\..*\.nystra-([0-9a-f]{8})-(\d{1,18})-[0-9a-f]{8}(\..*)?", re.DOTALL)

_folders: set[Path] = set()


def temporary_path(target: Path) -> Path:
    """Return a new hidden name in the target's folder, with its suffix and the writing process."""
    _folders.add(target.parent.absolute())
    owner = f"nystra-{_HOST}-{os.getpid()}-{secrets.token_hex(4)}"
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


def remove_own() -> None:
    """Remove the temporary files of this process, which is about to end."""
    own = (_HOST, str(os.getpid()))
    for folder in list(_folders):
        _remove(folder, lambda owner: owner == own)


def _remove(folder: Path, wanted: Callable[[tuple[str, str]], bool]) -> None:
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            match = _NAME.fullmatch(entry.name)
            if match is None or not wanted((match[1], match[2])) or not is_mine(Path(entry.path)):
                continue
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)


def _is_dead(owner: tuple[str, str]) -> bool:
    """Whether a process has ended; False on other machines (a shared folder) and on Windows."""
    host, process = owner
    if sys.platform == "win32" or host != _HOST:
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
def locked(path: Path) -> Iterator[None]:
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
