"""Memory of this process, current and peak, and available memory.

Linux keeps the resident set and its high-water mark in ``/proc/self/status`` and forgets the
mark when 5 is written to ``/proc/self/clear_refs`` (proc(5)); elsewhere only the mark since the
process began is known, from ``getrusage``.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_FALLBACK = 4 << 30
"""The available memory that is assumed where the system does not report it."""


class PeakMemory:
    """The peak of the resident memory of this process since this object was made.

    Attributes:
        before: Resident bytes at that moment, or None if it is unknown.
        exact: The system's high-water mark was reset; otherwise the peak may be older.
    """

    def __init__(self) -> None:
        self.exact = True
        try:
            _CLEAR.write_text("5")
        except OSError:
            self.exact = False
        self.before = resident_memory()
        if self.before is None:
            self.before = _highest()

    @property
    def peak(self) -> int | None:
        """Largest resident bytes since then, or None if it is unknown."""
        mark = _status("VmHWM")
        return _highest() if mark is None else mark

    @property
    def above(self) -> int | None:
        """Bytes of the peak above the memory before, at least 0; None if unknown."""
        peak = self.peak
        return None if peak is None or self.before is None else max(peak - self.before, 0)


def resident_memory() -> int | None:
    """Return the bytes of memory this process takes now, or None if it is unknown."""
    return _status("VmRSS")


def available_memory() -> int:
    """Return the bytes of memory a new process can take without swapping.

    The smaller of ``MemAvailable`` in /proc/meminfo and what the control group (v2) has left;
    the free pages, or 4 GiB, where neither is known.
    """
    amounts = [amount for amount in (_meminfo(), _control_group()) if amount is not None]
    if amounts:
        return min(amounts)
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return _FALLBACK


def release_free_memory() -> None:
    """Return freed memory of this process to the system, if the C library supports it (glibc).

    Otherwise a run would reuse the memory of earlier ones, and seem to need less.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _status(key: str) -> int | None:
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _highest() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _meminfo() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _control_group() -> int | None:
    folder = Path("/sys/fs/cgroup")
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = (folder / "memory.current").read_text().strip()
        return None if limit == "max" else max(int(limit) - int(used), 0)
    except (OSError, ValueError):
        return None
