"""Files of dead writers in a folder, which the next writer completes or removes."""

from __future__ import annotations

import contextlib
import os
import shutil
from functools import cache
from pathlib import Path

from .journal import recover_folder
from .temporary import owner_lives


@cache
def remove_leftovers(folder: Path) -> None:
    """Recover the sets of a folder and remove files of dead processes, once per process.

    Files of a process that may still run are left alone. Nothing is removed if a set cannot be
    recovered, since its files may be among them.
    """
    with contextlib.suppress(OSError):
        if not recover_folder(folder):
            return
        for entry in os.scandir(folder):
            if owner_lives(entry.name) is not False:
                continue
            with contextlib.suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    os.unlink(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
