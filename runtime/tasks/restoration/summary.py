"""What became of pictures, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..video.summary import rows as video_rows


def rows(results: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return a table of what was done, its head first."""
    if any("frames" in result for result in results):
        return video_rows(results)
    table: list[tuple[str, ...]] = [("input", "output", "size", "seconds", "tiles")]
    for result in results:
        if result["status"] == "done":
            width, height = result["output_size"]
            seconds, count = f"{result['seconds']:.2f}", str(result["tiles"])
            table.append((result["input"], result["output"], f"{width}x{height}", seconds, count))
    return table


def line(result: dict[str, Any]) -> str:
    """Return what became of one picture or frame."""
    if result["status"] == "failed":
        return f"{result['input']} failed: {result['error']}"
    width, height = result["output_size"]
    return (
        f"{result['input']} -> {result['output']}, {width}x{height}, {result['tiles']} tiles, "
        f"{result['seconds']:.2f} s (model {result['model_seconds']:.2f} s)"
    )


def example(model: str) -> str:
    """Return a program in Python that runs a model file of this name."""
    return f"""
from nystra.runtime import run_pictures

run_pictures("{model}", "in/", "out/")
"""
