"""The result of images, in words."""

from __future__ import annotations

from collections.abc import Sequence

from ..video.result import VideoResult
from ..video.summary import rows as video_rows
from .result import ImageResult
from .result import line as line


def rows(results: Sequence[ImageResult]) -> list[tuple[str, ...]]:
    """Return a table of the results, its header first."""
    videos = [result for result in results if isinstance(result, VideoResult)]
    if videos:
        return video_rows(videos)
    table: list[tuple[str, ...]] = [("input", "output", "size", "seconds", "tiles")]
    for result in results:
        if result.status == "done":
            width, height = result.output_size or (0, 0)
            seconds, count = f"{result.seconds:.2f}", str(result.tiles)
            table.append((result.input, result.output or "", f"{width}x{height}", seconds, count))
    return table


def example(model: str) -> str:
    """Return a program in Python that runs a model file of this name."""
    return f"""
from nystra.runtime import run_images

run_images({model!r}, "in/", "out/")
"""
