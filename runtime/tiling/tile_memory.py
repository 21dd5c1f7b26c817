"""The largest tile that fits into the free memory.

A run needs the memory of a `MemoryLaw`, in addition to the image in float32 (input and output). At
most half of the free memory is used: a measured law is accurate within a factor of 1.5, and other
programs need memory too.
"""

from __future__ import annotations

import math

from ...core.errors import NystraError
from ..machine.memory import available_memory, resident_memory
from .memory_meter import MemoryLaw

ASSUMED = MemoryLaw(40_960.0)
"""Bytes per pixel that are assumed without a measurement: a safe value for a SwinIR-M (180
channels, 6 heads) whose attention runs as its ONNX body at window 32 (24 KiB of scores per pixel,
and the feature maps)."""

ASSUMED_SQUARE = 12.0
"""Bytes per squared pixel that no network exceeds unless its file states it."""

_SMALLEST, _SMALLEST_SQUARE = 64, 24
_MOST_SQUARE = 2 << 30
"""Bytes for a tile whose memory grows with the square of its pixels, as its time does."""


def free_memory(kept: int = 0, most: int | None = None) -> int:
    """Return the bytes that a run may use.

    Args:
        kept: Bytes of earlier runs that this process keeps for reuse.
        most: Memory limit of this process in bytes; None is the available memory.

    Raises:
        NystraError: The process already uses more than that.
    """
    free = available_memory() + kept
    resident = resident_memory()
    if most is None or resident is None:
        return free
    if most <= resident - kept:
        raise NystraError(
            f"the process takes {(resident - kept) >> 20} MiB with the model loaded, and the "
            f"limit is {most >> 20} MiB: raise `max_memory`; see docs/running.md"
        )
    return min(free, most - resident + kept)


def tile_budget(size: tuple[int, int], channels: int, free: int) -> int:
    """Return the bytes that a run may use in addition to an image and its result.

    Args:
        size: Height and width of the image in pixels.
        channels: Float32 numbers per input pixel: channels of the input, and twice those of the
            output at its scale.
        free: Bytes of free memory.

    Raises:
        NystraError: Not even the image itself and its result fit.
    """
    images = image_bytes(size, channels)
    if images > free:
        raise NystraError(
            f"an image of {size[1]}x{size[0]} needs {images >> 20} MiB for itself and its "
            f"result, and {free >> 20} MiB are available: cut it into parts first; "
            "see docs/running.md"
        )
    return max((free - images) // 2, 1)


def image_bytes(size: tuple[int, int], channels: int) -> int:
    """Return the bytes of an image and its result; arguments as of `tile_budget`."""
    return size[0] * size[1] * 4 * channels


def automatic_tile(
    size: tuple[int, int],
    law: MemoryLaw,
    budget: int,
    *,
    multiple: int = 1,
    overlap: int = 0,
    minimum: int = 1,
) -> int | None:
    """Return the side of the largest square tile that a budget allows.

    Args:
        size: Height and width of the image in pixels.
        law: The memory of a run.
        budget: Bytes that a run may use.
        multiple: The model's size multiple; the tile is one of its multiples.
        overlap: Overlap of the tiles; the tile is at least twice that (or one multiple more), and
            64 pixels, or 24 where memory grows with the square.
        minimum: The model's smallest side.

    Returns:
        A side in input pixels, or None if the image can run whole.

    Raises:
        NystraError: The smallest tile takes more than twice the budget.
    """
    most = law.most_pixels(min(budget, _MOST_SQUARE) if law.square else budget)
    if size[0] * size[1] <= most:
        return None
    least = _SMALLEST_SQUARE if law.square else _SMALLEST
    smallest = max(least, minimum, 2 * overlap, overlap + multiple)
    smallest = -(-smallest // multiple) * multiple
    side = max(math.isqrt(most) // multiple * multiple, smallest)
    run = (min(side, size[0]), min(side, size[1]))
    refuse_too_large(run, run[0] * run[1], law, 2 * budget, "a tile")
    return side


def refuse_too_large(
    size: tuple[int, int], pixels: int, law: MemoryLaw, free: int, what: str
) -> None:
    """Raise NystraError if a run does not fit into the memory.

    Args:
        size: Height and width of what is run, in pixels.
        pixels: The larger number of its own pixels and those of its reference.
        law: The memory of a run.
        free: Bytes of free memory.
        what: ``an image`` or ``a tile``.
    """
    needed = int(law.bytes(pixels))
    if needed > free:
        advice = (
            "use a smaller one, or export the model with an attention that grows less "
            "(nystra-export --attn psal)"
            if law.square
            else "use a smaller one"
        )
        raise NystraError(
            f"this model needs about {needed >> 20} MiB for {what} of {size[1]}x{size[0]}, and "
            f"{free >> 20} MiB are available: {advice}; see docs/running.md"
        )
