"""Whose files nystra acts on: temporary files, records and folders that continue earlier work.

In a folder that others can write to, such as ``/tmp``, a file may have any name that nystra gives
its own. It is read or removed only if its owner could do that without us: this user, root, or the
owner of the folder. Links are not followed, except to write where a link of such an owner leads.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..errors import NystraError


def is_trusted(path: Path) -> bool:
    """Return whether a path is a folder, or a file with one name, that nystra acts on."""
    try:
        status = path.lstat()
    except OSError:
        return False
    if not (
        stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink <= 1)
    ):
        return False
    return _has_trusted_owner(path)


def may_follow(link: Path) -> bool:
    """Return whether a link may be followed to write a file: Linux has the same rule in /tmp."""
    return _has_trusted_owner(link)


def _has_trusted_owner(path: Path) -> bool:
    try:
        return is_mine(path) or path.lstat().st_uid in (0, path.parent.stat().st_uid)
    except OSError:
        return False


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
