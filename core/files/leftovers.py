"""Files of dead writers in a folder, which the next writer completes or removes.

Only trusted files are touched (`ownership`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

from .journal import has_journal, locked, recover_folder
from .ownership import is_trusted
from .temporary import is_own, owner_lives, used_folders


@cache
def remove_leftovers(folder: Path) -> None:
    """Recover the sets of a folder and remove files of dead processes, once per process.

    Files of a process that may still run are left alone. Nothing is removed if a set cannot be
    recovered, since its files may be among them.
    """
    with contextlib.suppress(OSError):
        if not recover_folder(folder):
            return
        _remove(folder, lambda name: owner_lives(name) is False)


def remove_own() -> None:
    """Remove the temporary files of this process, which is about to end.

    Files of a set that is being renamed are kept: the journal needs them.
    """
    for folder in used_folders():
        with contextlib.suppress(OSError), locked(folder, wait=False) as alone:
            if alone and not has_journal(folder):
                _remove(folder, is_own)


def _remove(folder: Path, wanted: Callable[[str], bool]) -> None:
    for entry in os.scandir(folder):
        if not wanted(entry.name) or not is_trusted(Path(entry.path), linked=True):
            continue
        with contextlib.suppress(OSError):
            if entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
