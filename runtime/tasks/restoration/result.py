"""The results of the images of a run, and how they are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from ..result import Result


@dataclass(frozen=True)
class ImageResult(Result):
    """The result of one image.

    Attributes:
        output_size: Width and height of the output, in pixels.
        model_seconds: Time of the model alone.
        tiles: Number of tiles that were run.
        columns: The head of a table of such results.
    """

    columns: ClassVar[tuple[str, ...]] = ("input", "output", "size", "seconds", "tiles")
    output_size: tuple[int, int] | None = None
    model_seconds: float | None = None
    tiles: int | None = None

    @property
    def tiles_text(self) -> str:
        """The number of tiles, in words."""
        return f"{self.tiles} tiles"

    @property
    def count_text(self) -> str:
        """The last column of a table."""
        return str(self.tiles)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> ImageResult:
        """Return the result of a JSON document of `as_dict`."""
        sizes = {
            name: None if document[name] is None else tuple(document[name])
            for name in ("input_size", "output_size")
        }
        return cls(**{**document, **sizes})


Pair: TypeAlias = tuple[Path, Path]
"""An image and its output."""

Done: TypeAlias = tuple[int, ImageResult]
"""The place of a pair among all, and the result of it."""


def rows(results: Sequence[ImageResult]) -> list[tuple[str, ...]]:
    """Return a table of the results, its header first."""
    table = [results[0].columns if results else ImageResult.columns]
    for result in results:
        if result.status == "done":
            width, height = result.output_size or (0, 0)
            size, seconds = f"{width}x{height}", f"{result.seconds:.2f}"
            table.append((result.input, result.output or "", size, seconds, result.count_text))
    return table


def line(result: ImageResult) -> str:
    """Return the result of one image or frame, in words."""
    if result.status == "failed":
        return f"{result.input} failed: {result.error}"
    width, height = result.output_size or (0, 0)
    return (
        f"{result.input} -> {result.output}, {width}x{height}, {result.tiles_text}, "
        f"{result.seconds:.2f} s (model {result.model_seconds:.2f} s)"
    )


def example(model: str) -> str:
    """Return a program in Python that runs a model file of this name."""
    return f"""
from nystra.runtime import run_images

run_images({model!r}, "in/", "out/")
"""
