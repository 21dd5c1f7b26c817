"""Temporary folders that are removed, also after their process was killed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import NystraError
from .temporary import remove_leftovers, temporary_path


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new folder among the system's temporary files, removed when the block is left.

    Its name contains the process that owns it: what a killed process left, the next process of the
    same user removes.

    Raises:
        NystraError: The system's folder of temporary files cannot be written.
    """
    place = Path(tempfile.gettempdir())
    remove_leftovers(place)
    folder = temporary_path(place / "scratch")
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        reason = error.strerror or error
        raise NystraError(
            f"cannot create a temporary folder in {place}: {reason}. Set TMPDIR to another folder"
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
