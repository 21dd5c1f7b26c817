"""How far an export is: what is done, of how many steps."""

from __future__ import annotations

import time
from collections.abc import Callable


class Steps:
    """Announces each step with its number, and with how many there are once that is known.

    Attributes:
        done: Steps that were begun.
        total: Of the whole export, or 0 before the network is loaded.
        seconds: What each kind of step has taken; ``against full attention`` is one kind, whatever
            stands behind its colon.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        """Hand every step to ``show``."""
        self._show, self.done, self.total = show, 0, 0
        self.seconds: dict[str, float] = {}
        self._begun = time.perf_counter()
        self._kind: str | None = None

    def __call__(self, text: str) -> None:
        """Announce that a step begins."""
        self.end()
        self.done += 1
        self._kind = text.partition(":")[0]
        self._show(f"{self.done}/{self.total} {text}" if self.total else text)

    def within(self, text: str) -> None:
        """Announce progress inside a step whose parts are counted: ``3/100 measure ...``."""
        self._show(text)

    def end(self) -> None:
        """Count the time of the present step, which ends here."""
        now = time.perf_counter()
        if self._kind is not None:
            self.seconds[self._kind] = self.seconds.get(self._kind, 0.0) + now - self._begun
        self._begun, self._kind = now, None

    def expect(self, more: int) -> None:
        """Take the total as what was begun and so many steps to come."""
        self.total = self.done + more
