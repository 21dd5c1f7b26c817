"""How far an export is: what is done, of how many steps."""

from __future__ import annotations

from collections.abc import Callable

from ..runtime.backends import find_backend
from .build.stage import is_timed
from .load.stage import Prepared
from .plan.stage import Planned
from .validate.model_file import libraries


class Steps:
    """Says each step with its number, and with how many there are once that is known.

    Attributes:
        done: Steps that were begun.
        total: Of the whole export, or 0 before the network is loaded.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        """Hand every step to ``say``."""
        self._say, self.done, self.total = say, 0, 0

    def __call__(self, text: str) -> None:
        """Say that a step begins."""
        self.done += 1
        self._say(f"{self.done}/{self.total} {text}" if self.total else text)

    def within(self, text: str) -> None:
        """Say how far a step has come whose own parts are counted: ``3/100 measure ...``."""
        self._say(text)

    def expect(self, prepared: Prepared, planned: Planned) -> None:
        """Count the steps of all stages."""
        timed, transform = is_timed(prepared, planned), prepared.transform
        graphs = (1 + timed) * (1 if transform.apply is None else 2)
        judged = (transform.label in find_backend("ort-cpu").precisions) + (
            transform.apply is not None
        )
        runs = judged * len(libraries(bodies=prepared.options.functions != "none"))
        compared = prepared.trained is not None or not planned.is_neutral
        samples = len(prepared.samples) if compared else 0
        load, write = 1, 1
        self.total = load + graphs + len(prepared.feeds) + runs + samples + timed + write
