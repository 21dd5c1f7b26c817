"""How much memory this process takes now, and at most since a moment.

Linux keeps the resident set and its high-water mark in ``/proc/self/status`` and forgets the
mark when 5 is written to ``/proc/self/clear_refs`` (proc(5)); elsewhere only the mark since the
process began is known, from ``getrusage``.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


class PeakMemory:
    """The peak of the resident memory of this process since this object was made.

    Attributes:
        before: Resident bytes at that moment, or None where it is unknown.
        exact: The system's mark was set back; without that the peak may be an older one.
    """

    def __init__(self) -> None:
        """Set the system's mark back, where that is possible."""
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
        """Largest resident bytes since then, or None where it is unknown."""
        mark = _status("VmHWM")
        return _highest() if mark is None else mark

    @property
    def above(self) -> int | None:
        """Bytes the peak lies above what was there before, at least 0; None if unknown."""
        peak = self.peak
        return None if peak is None or self.before is None else max(peak - self.before, 0)


def resident_memory() -> int | None:
    """Return the bytes of memory this process takes now, or None where it is unknown."""
    return _status("VmRSS")


def release_free_memory() -> None:
    """Give what this process has freed back to the system, where the C library can (glibc).

    A run that follows would otherwise take place in what earlier ones left, and seem to need less.
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
