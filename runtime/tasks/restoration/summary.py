"""What is said of restored pictures and videos to people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def rows(results: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return a table of what was done, its head first."""
    video = any("frames" in result for result in results)
    table: list[tuple[str, ...]] = [
        ("input", "output", "size", "seconds", "frames" if video else "tiles")
    ]
    for result in results:
        if result["status"] == "done":
            width, height = result["output_size"]
            seconds, count = f"{result['seconds']:.2f}", str(result["tiles"])
            if video:
                count = f"{result['frames']}, {result['kept']} kept"
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
