"""The steps of replacing a file or folder: what stays of the former one, what is on the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path
from typing import Any

from .ownership import may_follow

_LINKS = 40
"""The most links of a chain, as in Linux."""

_NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}
"""Errors of file systems that have no `fsync`."""

_CURRENT_FOLDER = -100  # AT_FDCWD
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, and RENAME_SWAP of macOS


def follow_links(path: Path) -> Path:
    """Return the path that is to be replaced: where a link leads to, also if nothing is there.

    A link that another user may have planted is returned itself: it is replaced.

    Raises:
        OSError: The links lead in a circle.
    """
    for _ in range(_LINKS):
        if not (path.is_symlink() and may_follow(path)):
            return path
        path = path.parent / os.readlink(path)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def keep_access(former: Path, new: Path) -> None:
    """Give a new file or folder the mode and, where that is permitted, the owner of the former."""
    if os.name != "posix" or not former.exists():
        return
    before, now = former.stat(), new.stat()
    if (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid):
        with contextlib.suppress(OSError):
            os.chown(new, before.st_uid, before.st_gid)
    with contextlib.suppress(OSError):  # a file system without modes
        os.chmod(new, stat.S_IMODE(before.st_mode) & 0o777)


def sync_file(path: Path) -> None:
    """Wait until the content of a file is on the disk.

    Raises:
        OSError: The disk is full, or broken.
    """
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Wait until the files of a folder, and the names of all that is in it, are on the disk.

    Raises:
        OSError: The disk is full, or broken.
    """
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if stat.S_ISREG(path.lstat().st_mode):
                sync_file(path)
        if os.name == "posix":
            sync_file(Path(place))


def exchange(first: Path, second: Path) -> bool:
    """Exchange two files or folders in one step; return False where that is not possible."""
    import ctypes

    library: Any = ctypes.CDLL(None) if os.name == "posix" else None
    paths = os.fsencode(first), os.fsencode(second)
    status = -1
    if sys.platform == "linux" and hasattr(library, "renameat2"):
        status = library.renameat2(_CURRENT_FOLDER, paths[0], _CURRENT_FOLDER, paths[1], _EXCHANGE)
    elif sys.platform == "darwin" and hasattr(library, "renamex_np"):
        status = library.renamex_np(*paths, _EXCHANGE)
    return status == 0
