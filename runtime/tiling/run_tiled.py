"""Runs a network over an image in tiles, so that memory does not grow with the image.

It combines three parts that a server can use separately: choosing tiles (`plan_tiles`), running
them (in batches, of several images, again one by one if a batch failed), and blending the results
(`Stitcher`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ...core.arrays import Array
from ...core.errors import NystraError
from .stitching import Stitcher
from .tile_plan import DEFAULT_OVERLAP, plan_tiles

ImageFunction = Callable[[Array], Array]
Batches = Callable[[ImageFunction, Iterable[list[Array]]], Iterator[list[Array]]]
"""Runs a function on batches of tiles, and yields the results in order."""


def run_tiled(
    function: ImageFunction,
    image: Array,
    tile: int | tuple[int, int] | None,
    overlap: int = DEFAULT_OVERLAP,
    scale: int = 1,
    multiple: int = 1,
    progress: Callable[[int, int], None] | None = None,
    *,
    fixed: bool = False,
    blend: str = "linear",
    batch: int = 1,
    batches: Batches | None = None,
) -> npt.NDArray[np.float32]:
    """Run ``function`` over the image in overlapping tiles and blend the results.

    Args:
        function: (B, C, h, w) -> (B, C', h * scale, w * scale), B at most ``batch``.
        image: (1, C, H, W).
        tile: As in `plan_tiles`.
        overlap: As in `plan_tiles`.
        scale: Output pixels per input pixel and axis.
        multiple: As in `plan_tiles`.
        progress: Called with (tiles done, total number of tiles) after each batch.
        fixed: As in `plan_tiles`.
        blend: As in `Stitcher`.
        batch: Tiles per run. A batch that fails is run again tile by tile.
        batches: How batches are run; None: one after the other, `in_turn`.

    Returns:
        (1, C', H * scale, W * scale) in float32.

    Raises:
        NystraError: The arguments contradict each other, or the output has an unexpected shape.
    """
    if image.ndim != 4 or image.shape[0] != 1 or 0 in image.shape:
        raise NystraError(f"got an image of shape {image.shape}, expected (1, C, H, W), not empty")
    if batch < 1:
        raise NystraError(f"the batch is {batch} tiles, expected 1 or more")
    plan = plan_tiles(image.shape[2:], tile, overlap, multiple, fixed=fixed)
    stitcher = Stitcher(plan, scale, blend)
    groups = [range(len(plan))[first : first + batch] for first in range(0, len(plan), batch)]
    cut = ([plan.cut(image, index) for index in indices] for indices in groups)
    for indices, outputs in zip(groups, (batches or in_turn)(function, cut), strict=True):
        for index, output in zip(indices, outputs, strict=True):
            stitcher.add(index, output)
        if progress is not None:
            progress(indices[-1] + 1, len(plan))
    return stitcher.image()


def in_turn(function: ImageFunction, batches: Iterable[list[Array]]) -> Iterator[list[Array]]:
    """Run batches of tiles one after the other; see `run_batch`."""
    return (run_batch(function, tiles) for tiles in batches)


def run_batch(function: ImageFunction, tiles: Sequence[Array]) -> list[Array]:
    """Run tiles of one shape at once; one by one if that fails.

    Args:
        function: (B, C, h, w) -> (B, C', h', w').
        tiles: (1, C, h, w) each, of one image or of several.

    Returns:
        (1, C', h', w') for each.

    Raises:
        NystraError: A tile fails by itself too, or the output has another number of images.
    """
    if len(tiles) == 1:
        return [function(tiles[0])]
    try:
        outputs = function(np.concatenate(list(tiles)))
    except (NystraError, MemoryError):
        return [function(tile) for tile in tiles]
    if outputs.shape[:1] != (len(tiles),):
        raise NystraError(f"the model returned {outputs.shape} for a batch of {len(tiles)} tiles")
    return [outputs[index : index + 1] for index in range(len(tiles))]
