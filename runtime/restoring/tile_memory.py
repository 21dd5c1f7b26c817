"""How large a tile the free memory allows.

The model of memory: a run of n = h x w input pixels takes ``n * bytes_per_pixel`` bytes at its
peak, and ``n^2 * quadratic_bytes`` more where attention sees the whole picture; the picture in
float32 (input and output) is held beside it. `BYTES_PER_PIXEL` is on the safe side of a SwinIR-M
(180 channels, 6 heads) whose attention runs as its ONNX body at window 32: 24 KiB of scores for a
pixel, and the maps around them. Half of the memory that is available is used at most.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from ...plugins.errors import NystraError

BYTES_PER_PIXEL = 40_960
"""Peak bytes per input pixel of a run, where nothing else is known."""

_FALLBACK = 4 << 30
_SMALLEST, _SMALLEST_QUADRATIC = 64, 24


def available_memory() -> int:
    """Return the bytes of memory a new process can take without swapping.

    The smaller of ``MemAvailable`` in /proc/meminfo and what the control group (v2) has left;
    the free pages, or 4 GiB, where neither is known.
    """
    amounts = [amount for amount in (_meminfo(), _control_group()) if amount is not None]
    if amounts:
        return min(amounts)
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return _FALLBACK


def automatic_tile(
    height: int,
    width: int,
    channels: int,
    scale: int,
    available: int | None = None,
    *,
    multiple: int = 1,
    overlap: int = 0,
    minimum: int = 1,
    output_channels: int | None = None,
    bytes_per_pixel: int = BYTES_PER_PIXEL,
    quadratic_bytes: float = 0.0,
) -> int | None:
    """Return the side of the largest square tile that the memory allows.

    Args:
        height: Of the picture, in pixels.
        width: Of the picture, in pixels.
        channels: Of the model's input.
        scale: Output pixels per input pixel and axis.
        available: Bytes of memory, or None to ask the system.
        multiple: The model's size multiple; the tile is one of its multiples.
        overlap: Of the tiles; the tile is at least twice that (or one multiple more), and 64
            pixels, or 24 where memory grows with the square.
        minimum: The model's smallest side.
        output_channels: Of the model's output, or None for ``channels``.
        bytes_per_pixel: See the module.
        quadratic_bytes: Of the model's facts.

    Returns:
        A side in input pixels, or None if the picture can run whole.

    Raises:
        NystraError: Not even the picture itself and its result fit into the memory.
    """
    free = available_memory() if available is None else available
    depth = channels if output_channels is None else output_channels
    pictures = height * width * 4 * (channels + 2 * depth * scale * scale)
    if pictures > free:
        raise NystraError(
            f"a picture of {width}x{height} needs {pictures >> 20} MiB for itself and its result "
            f"at scale {scale}, and {free >> 20} MiB are available: cut it into parts first"
        )
    budget = max((free - pictures) // 2, 1)
    if _run_bytes(height * width, bytes_per_pixel, quadratic_bytes) <= budget:
        return None
    side = math.isqrt(_most_pixels(budget, bytes_per_pixel, quadratic_bytes)) // multiple * multiple
    least = _SMALLEST_QUADRATIC if quadratic_bytes else _SMALLEST
    smallest = max(least, minimum, 2 * overlap, overlap + multiple)
    return max(side, -(-smallest // multiple) * multiple)


def refuse_too_large(
    height: int, width: int, quadratic_bytes: float, available: int | None = None
) -> None:
    """Raise NystraError when the attention of a whole picture does not fit into the memory.

    Args:
        height: Of the picture, in pixels.
        width: Of the picture, in pixels.
        quadratic_bytes: Of the model's facts.
        available: Bytes of memory, or None to ask the system.
    """
    free = available_memory() if available is None else available
    needed = int(quadratic_bytes * (height * width) ** 2)
    if needed > free:
        raise NystraError(
            f"the attention of this model needs about {needed >> 20} MiB for a picture of "
            f"{width}x{height}, and {free >> 20} MiB are available: take a smaller picture, or "
            "export the model with an attention that grows less (nystra-export --attn psal)"
        )


def _run_bytes(pixels: int, each: int, square: float) -> float:
    return pixels * each + pixels**2 * square


def _most_pixels(budget: int, each: int, square: float) -> int:
    """Return the most pixels a run within the budget can have."""
    if square == 0:
        return budget // each
    return int((math.sqrt(each**2 + 4.0 * square * budget) - each) / (2.0 * square))


def _meminfo() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _control_group() -> int | None:
    folder = Path("/sys/fs/cgroup")
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = (folder / "memory.current").read_text().strip()
        return None if limit == "max" else max(int(limit) - int(used), 0)
    except (OSError, ValueError):
        return None
