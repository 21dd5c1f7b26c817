"""The progress of an export: finished steps of all."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..runtime.machine.memory import release_free_memory

Progress = Callable[[str], None]
"""Takes a line that says what is done."""


class Steps:
    """Reports each step with its number, and the number of steps once known.

    Attributes:
        done: Number of begun steps.
        total: Steps of the whole export, or 0 before the network is loaded.
        seconds: Time of each kind of step; ``against full attention`` is one kind, whatever follows
            its colon.
    """

    def __init__(self, show: Progress) -> None:
        self._show = show
        self.done = 0
        self.total = 0
        self.seconds: dict[str, float] = {}
        self._begun = time.perf_counter()
        self._kind: str | None = None

    def __call__(self, text: str) -> None:
        """Report that a step begins."""
        self.end()
        self.done += 1
        self._kind = text.partition(":")[0]
        self._show(f"{self.done}/{self.total} {text}" if self.total else text)

    def within(self, text: str) -> None:
        """Report progress inside a step with counted parts: ``3/100 measure ...``."""
        self._show(text)

    def end(self) -> None:
        """End the current step and add its time."""
        now = time.perf_counter()
        if self._kind is not None:
            before = self.seconds.get(self._kind, 0.0)
            self.seconds[self._kind] = before + now - self._begun
        self._begun = now
        self._kind = None
        release_free_memory()  # the next step may need it in other libraries

    def expect(self, more: int) -> None:
        """Set the total to the begun steps plus further ones."""
        self.total = self.done + more
