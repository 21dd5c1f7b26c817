"""Opening what should be a plain file: a pipe would wait for ever, a device never end."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from ...plugins.errors import NystraError

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def refuse_special_file(path: str | os.PathLike[str], what: str) -> None:
    """Raise NystraError unless a path leads to a plain file.

    Args:
        path: What is about to be opened; links are followed.
        what: What it should be, such as ``picture``.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise NystraError(f"cannot read the {what} {path}: {_reason(error)}") from error
    for is_kind, name in _KINDS:
        if is_kind(mode):
            raise NystraError(f"{path} is {name}, expected a {what}")


def open_regular(path: str | os.PathLike[str], what: str) -> BinaryIO:
    """Open a plain file for reading.

    Raises:
        NystraError: It is missing, no plain file, or may not be read.
    """
    refuse_special_file(path, what)
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise NystraError(f"cannot read the {what} {path}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
