"""The result of a video, in words."""

from __future__ import annotations

from collections.abc import Sequence

from ..restoration.result import line as line
from .result import VideoResult


def rows(results: Sequence[VideoResult]) -> list[tuple[str, ...]]:
    """Return a table of the results, its header first."""
    table: list[tuple[str, ...]] = [("input", "output", "size", "seconds", "frames")]
    for result in results:
        if result.status == "done":
            width, height = result.output_size or (0, 0)
            frames = f"{result.frames}, {result.kept} kept"
            if result.reused:
                frames += f", {result.tiles_text}"
            size, seconds = f"{width}x{height}", f"{result.seconds:.2f}"
            table.append((result.input, result.output or "", size, seconds, frames))
    return table


def example(model: str) -> str:
    """Return a program in Python that runs a model file of this name."""
    return f"""
from nystra.runtime import Session, run_video

run_video(Session({model!r}), "clip.mp4", "restored.mp4")
"""
