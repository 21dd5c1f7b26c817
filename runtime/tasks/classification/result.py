"""The most likely classes of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core.arrays import Array
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


def softmax(logits: Array) -> Array:
    """Return the probabilities (classes) of logits (classes)."""
    powers: Array = np.exp(logits - logits.max())
    shares: Array = powers / powers.sum()
    return shares


def ranked(logits: Array, labels: Sequence[str], top: int) -> list[RankedClass]:
    """Return the classes of the largest logits, best first; of equal ones the smaller number.

    Args:
        logits: (classes).
        labels: Names of the classes; empty if unknown.
        top: Number of classes to return.
    """
    shares = softmax(logits)
    return [
        RankedClass(
            int(place),
            labels[place] if labels else None,
            float(shares[place]),
            float(logits[place]),
        )
        for place in np.argsort(-logits, kind="stable")[:top]
    ]
