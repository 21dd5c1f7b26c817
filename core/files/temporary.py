"""Names of temporary files: hidden, next to their target, with their owner in the name."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import secrets
import sys
from pathlib import Path

_HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
_NAME = re.compile(r"\..*\.nystra-([0-9a-f]{8})-(\d{1,18})-[0-9a-f]{8}(\..*)?", re.DOTALL)

_folders: set[Path] = set()


def temporary_path(target: Path) -> Path:
    """Return a new hidden name in the target's folder, with its suffix and the writing process."""
    _folders.add(target.parent.absolute())
    owner = f"nystra-{_HOST}-{os.getpid()}-{secrets.token_hex(4)}"
    return target.with_name(f".{_short(target.stem)}.{owner}{target.suffix}")


def owner_lives(name: str) -> bool | None:
    """Return whether the process that made a temporary name may still run; None: another name.

    True also for processes of other machines (a shared folder), and where the system cannot tell
    (Windows).
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return sys.platform == "win32" or match[1] != _HOST or _lives(int(match[2]))


def is_own(name: str) -> bool:
    """Return whether this process made a temporary name."""
    match = _NAME.fullmatch(name)
    return match is not None and (match[1], match[2]) == (_HOST, str(os.getpid()))


def used_folders() -> list[Path]:
    """Return the folders for which this process has made temporary names."""
    return list(_folders)


def _short(stem: str) -> str:
    """Shorten a name so that the temporary name does not exceed 255 bytes.

    What the system's encoding cannot say is left out, so that every library can open the file.
    """
    return os.fsencode(stem)[:80].decode(sys.getfilesystemencoding(), "ignore")


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
