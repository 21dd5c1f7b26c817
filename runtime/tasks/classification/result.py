"""The classes of one image of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..result import Result


@dataclass(frozen=True)
class RankedClass:
    """One of the most likely classes of an image.

    Attributes:
        number: Its index among the logits.
        label: Its name, or None if unknown.
        probability: Its softmax.
        logit: Its logit.
    """

    number: int
    label: str | None
    probability: float
    logit: float

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        values = {"label": self.label, "probability": self.probability, "logit": self.logit}
        return {"class": self.number, **values}


@dataclass(frozen=True)
class ClassResult(Result):
    """The classes of one image; `Result` has the other fields.

    Attributes:
        classes: The most likely ones, best first.
    """

    classes: Sequence[RankedClass] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return super().as_dict() | {"classes": [ranked.as_dict() for ranked in self.classes]}
