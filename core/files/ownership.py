"""Whose files are obeyed: journals, temporary files and folders that continue earlier work.

In a folder that others can write to, such as ``/tmp``, a file may have any name that nystra gives
its own. What it says is done only if its owner could do it without us: this user, root, or the
owner of the folder. Links are never followed: another user may have made them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..errors import NystraError


def is_trusted(path: Path, *, linked: bool = False) -> bool:
    """Return whether a file or folder is one that nystra acts on.

    Args:
        path: A regular file or a folder; a symbolic link is not trusted.
        linked: A file may have other names (hard links), and be a symbolic link.
    """
    try:
        status, folder = path.lstat(), path.parent.stat()
    except OSError:
        return False
    return _is_fit(status, linked) and _owns(status, folder)


def is_mine(path: Path) -> bool:
    """Return whether this user owns a file or folder; of a link the link itself."""
    user = getattr(os, "geteuid", None)  # Windows: permissions are not seen here
    return user is None or path.lstat().st_uid == user()


def require_own_folder(path: Path, advice: str) -> None:
    """Refuse a folder of another user, or a link to one; a missing folder passes.

    Args:
        path: The folder.
        advice: The end of the message: what to do.

    Raises:
        NystraError: It is not a trusted folder.
    """
    if os.path.lexists(path) and not (is_trusted(path) and path.is_dir()):
        raise NystraError(
            f"{path} is not a folder of this user, so others could write to it: {advice}"
        )


def read_trusted(path: Path, most: int) -> bytes | None:
    """Return the content of a trusted file, up to one byte more than ``most``; None of another."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except OSError:
        return None
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        os.close(descriptor)
        return None
    with open(descriptor, "rb") as stream:
        if not (_is_fit(status, linked=False) and _owns(status, path.parent.stat())):
            return None
        return stream.read(most + 1)


def _is_fit(status: os.stat_result, linked: bool) -> bool:
    if stat.S_ISDIR(status.st_mode):
        return True
    if linked:
        return stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
    return stat.S_ISREG(status.st_mode) and status.st_nlink <= 1


def _owns(status: os.stat_result, folder: os.stat_result) -> bool:
    user = getattr(os, "geteuid", None)
    if user is None:  # Windows: permissions are not seen here
        return True
    return status.st_uid in (user(), 0, folder.st_uid)
