"""How far an export is: what is done, of how many steps."""

from __future__ import annotations

from collections.abc import Callable


class Steps:
    """Announces each step with its number, and with how many there are once that is known.

    Attributes:
        done: Steps that were begun.
        total: Of the whole export, or 0 before the network is loaded.
    """

    def __init__(self, show: Callable[[str], None]) -> None:
        """Hand every step to ``show``."""
        self._show, self.done, self.total = show, 0, 0

    def __call__(self, text: str) -> None:
        """Announce that a step begins."""
        self.done += 1
        self._show(f"{self.done}/{self.total} {text}" if self.total else text)

    def within(self, text: str) -> None:
        """Announce progress inside a step whose parts are counted: ``3/100 measure ...``."""
        self._show(text)

    def expect(self, more: int) -> None:
        """Take the total as what was begun and so many steps to come."""
        self.total = self.done + more
