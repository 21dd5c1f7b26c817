"""Writing files so that a failure leaves nothing half-written and destroys nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import NystraError
from .file_set import file_set


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path next to ``path``, which is moved to ``path`` when the block succeeds.

    The temporary name keeps the suffix, since many writers choose a format by it. If the block
    raises, the temporary file is removed and an existing file at ``path`` is unchanged; leftovers
    of killed processes in the folder are removed.

    Raises:
        NystraError: The folder does not exist or cannot be written, or the disk is full.
    """
    check_writable_folder(Path(path).parent)
    with file_set(path) as files:
        yield files.temporary(path)


def atomic_write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a whole file, or leave the existing one unchanged.

    Raises:
        NystraError: The folder does not exist or cannot be written, or the disk is full.
    """
    check_writable_folder(Path(path).parent)
    with file_set(path) as files:
        files.write(path, data)


def check_writable_folder(folder: Path) -> None:
    """Raise `NystraError` unless files can be created in the folder."""
    if not folder.exists():
        raise NystraError(f"the folder {folder} does not exist: create it or choose another output")
    if not folder.is_dir():
        raise NystraError(f"{folder} is a file, expected a folder: choose another output")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise NystraError(f"the folder {folder} is not writable: choose another output")


def check_can_make(folder: Path) -> None:
    """Raise NystraError if a folder is neither writable nor can be created."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    check_writable_folder(existing)


def check_folder_name(path: str, instead: str) -> None:
    """Raise NystraError where the name of a folder to be made is like that of a file: ``out.gif``.

    Args:
        path: As it was given: a slash at its end says that it is a folder.
        instead: What is expected, apart from a folder.
    """
    ending = re.search(r"\.(?=[0-9]*[a-z])[a-z0-9]{1,5}$", path.lower())
    if ending is not None and not Path(path).is_dir():
        raise NystraError(
            f"the output {path} looks like a {ending[0]} file: expected {instead}, or a folder, "
            f"whose name ends in a slash if it has a dot ({path}/)"
        )


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, or raise `NystraError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise NystraError(
            f"cannot create the folder {folder}: {reason}. Choose another output."
        ) from error
    check_writable_folder(folder)
