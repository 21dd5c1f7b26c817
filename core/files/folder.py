"""A folder that is written completely or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import NystraError
from .leftovers import remove_leftovers
from .temporary import temporary_path
from .writing import make_folder


@contextmanager
def atomic_folder(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a new folder next to ``path``, which is moved to ``path`` when the block succeeds.

    If the block raises, the new folder is removed and an existing one at ``path`` is unchanged.

    Args:
        path: The folder; its parents are created.
        overwrite: Replace an existing folder with all its content.

    Raises:
        NystraError: It exists and may not be replaced, or it cannot be written.
    """
    target = Path(path).absolute()
    if target.exists() and not (overwrite and target.is_dir()):
        what = "exists" if target.is_dir() else "is a file, expected a folder"
        raise NystraError(f"{path} {what}: choose another output or add `overwrite`")
    make_folder(target.parent)
    remove_leftovers(target.parent)
    temporary = temporary_path(target)
    try:
        temporary.mkdir()
        yield temporary
        _move(temporary, target)
    except OSError as error:
        reason = error.strerror or error
        raise NystraError(f"cannot write {path}: {reason}. Check the folder and disk.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _move(temporary: Path, target: Path) -> None:
    """Replace the existing folder by the new one; on an error restore it."""
    if not target.exists():
        os.rename(temporary, target)
        return
    former = temporary_path(target)
    os.rename(target, former)
    try:
        os.rename(temporary, target)
    except BaseException:
        os.rename(former, target)
        raise
    shutil.rmtree(former, ignore_errors=True)
