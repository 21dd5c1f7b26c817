"""The progress of a search over all its measurements, and its remaining time."""

from __future__ import annotations

import time
from collections.abc import Callable


class Eta:
    """Reports the next step, the percentage and the remaining time.

    Work is counted in runs of the network on one image.

    Attributes:
        left: Remaining work, as far as known: a search may find more, or need less.
    """

    def __init__(self, progress: Callable[[str], None]) -> None:
        """Begin now, without finished or remaining work."""
        self._progress, self._done, self.left = progress, 0.0, 0.0
        self._start = time.monotonic()

    def done(self, work: float) -> None:
        """Move work from remaining to finished."""
        self._done += work
        self.left = max(self.left - work, 0.0)

    def announce(self, text: str) -> None:
        """Report the next step: ``37/100 verify plan 3, about 2 min 05 s left``."""
        share = self._done / max(self._done + self.left, 1e-9)
        left = ""
        if self._done > 0:
            spent = time.monotonic() - self._start
            left = f", about {_duration(spent / self._done * self.left)} left"
        self._progress(f"{min(100, 1 + int(100 * share))}/100 {text}{left}")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(max(seconds, 0)), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
