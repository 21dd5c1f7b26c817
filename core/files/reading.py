"""Checks of files that others made, before anything opens them."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

from ..errors import NystraError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def regular_file(
    path: str | os.PathLike[str], what: str, error: type[NystraError] = NystraError
) -> Path:
    """Return the path of an existing regular file, or refuse it before it is opened.

    A pipe or a device may be endless, and opening one can block.

    Args:
        path: The file; links are followed.
        what: What it is, for the message: ``the baseline``.
        error: The class that is raised.

    Raises:
        NystraError: It does not exist, cannot be looked at, or is not a regular file.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError) as reason:  # ValueError: a NUL byte in the name
        raise error(f"cannot read {what} {path}: {why_missing(path) or _why(reason)}") from reason
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise error(f"{what} {path} is {kind}, expected a regular file")
    return Path(path)


def utf8_path(path: Path, what: str, by: str) -> str:
    """Return a path for a library that takes UTF-8 alone, whatever the system's encoding is.

    Args:
        path: The file.
        what: What it is, for the message: ``the model``.
        by: The library.

    Raises:
        NystraError: Its name is not UTF-8.
    """
    try:
        return os.fsencode(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise NystraError(
            f"{what} {path} has a name that is not UTF-8, and {by} cannot open it: rename it"
        ) from error


def is_there(path: str | os.PathLike[str], what: str) -> bool:
    """Return whether a path exists; a link to a missing file counts.

    Raises:
        NystraError: It cannot be determined: a folder of the path may not be entered.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as reason:
        raise NystraError(f"cannot read {what} {path}: {_why(reason)}") from reason
    return True


def open_regular(
    path: str | os.PathLike[str], what: str, error: type[NystraError] = NystraError
) -> BinaryIO:
    """Open a regular file for reading; see `regular_file`.

    Raises:
        NystraError: It is missing, no regular file, or may not be read.
    """
    file = regular_file(path, what, error)
    try:
        return file.open("rb")
    except OSError as reason:
        raise error(f"cannot read {what} {path}: {_why(reason)}") from reason


def file_sha256(
    path: str | os.PathLike[str], what: str = "the file", error: type[NystraError] = NystraError
) -> str:
    """Return the SHA-256 of a regular file, in hexadecimal; see `regular_file`.

    Raises:
        NystraError: The file cannot be read.
    """
    digest = hashlib.sha256()
    with open_regular(path, what, error) as stream:
        try:
            while block := stream.read(1 << 20):
                digest.update(block)
        except OSError as reason:
            raise error(f"cannot read {what} {path}: {_why(reason)}") from reason
    return digest.hexdigest()


def why_missing(path: str | os.PathLike[str]) -> str:
    """Return why a path that does not exist cannot: it is an address of the web; or ""."""
    if re.match(r"[A-Za-z][A-Za-z0-9+]+:/", str(path)):
        return "it is an address, and nystra opens no connection: download the file first"
    return ""


def _why(reason: OSError | ValueError) -> object:
    return getattr(reason, "strerror", None) or reason
