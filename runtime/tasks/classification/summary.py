"""The classes of images, in words."""

from __future__ import annotations

from collections.abc import Sequence

from .result import ClassResult, RankedClass


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
