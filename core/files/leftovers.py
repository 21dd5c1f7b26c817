"""Temporary files and folders of writers that died: the next writer knows and removes them.

A name says the machine and the process it belongs to. What belongs to another machine (a shared
folder) or to a process that lives is left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import secrets
import shutil
import sys
from functools import cache
from pathlib import Path

_HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
_NAME = re.compile(rf"\..*\.nystra-{_HOST}-(\d+)-[0-9a-f]{{8}}(\..*)?", re.DOTALL)


def temporary_beside(target: Path) -> Path:
    """Return a new hidden name in the target's folder; it keeps the suffix and says who writes."""
    owner = f"nystra-{_HOST}-{os.getpid()}-{secrets.token_hex(4)}"
    return target.with_name(f".{_short(target.stem)}.{owner}{target.suffix}")


@cache
def remove_leftovers(folder: Path) -> None:
    """Remove what this machine's dead processes left temporarily in a folder, once a process.

    Where the system cannot say whether a process lives (Windows), nothing is removed.
    """
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            match = _NAME.fullmatch(entry.name)
            if not match or _alive(int(match[1])):
                continue
            with contextlib.suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    os.unlink(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)


def _short(stem: str) -> str:
    """Cut a name so that the temporary one fits where the name itself does (255 bytes)."""
    return stem.encode("utf-8", "surrogateescape")[:80].decode("utf-8", "ignore")


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
