"""The most likely classes of images, and how they are printed."""

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


def rank_classes(logits: Array, labels: Sequence[str], top: int) -> list[RankedClass]:
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


def rows(results: Sequence[ClassResult]) -> list[tuple[str, ...]]:
    """Return a table with its header: all classes, or the first ones if a file lists all."""
    table: list[tuple[str, ...]] = [("image", "class", "label", "probability")]
    for result in results:
        classes = result.classes if result.output is None else result.classes[:1]
        for rank, entry in enumerate(classes):
            name = result.input if rank == 0 else ""
            table.append((name, str(entry.number), entry.label or "", _share(entry)))
    return table


def line(result: ClassResult) -> str:
    """Return the result of one image."""
    if result.status == "failed":
        return f"{result.input} failed: {result.error}"
    best = result.classes[0]
    label = best.label or f"class {best.number}"
    return f"{result.input}: {label}, {_share(best)}, {result.seconds:.2f} s"


def example(model: str) -> str:
    """Return a program in Python that runs a model file of this name."""
    return f"""
from nystra.runtime import Session, classify_images

for result in classify_images(Session({model!r}), "photo.png"):
    print(result.classes)
"""


def _share(entry: RankedClass) -> str:
    return f"{entry.probability:.1%}"
