"""Restoring frames: one by one or in windows of time, with a bounded number in memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias

import numpy as np

from ....core.arrays import Array
from ....core.errors import NystraError
from ...images.image_data import ImageData
from ...pool.calls import Call, Failed, Pool
from ...tiling.run_tiled import ImageFunction
from ...tiling.tiled_network import TiledNetwork
from ...tiling.time_windows import Window, plan_windows
from ...video.file_source import VideoFile
from ...video.frame_folder import FrameFolder
from ..restoration.auxiliary_roles import AuxiliaryInputs
from ..restoration.options import RunOptions
from ..restoration.restorer import RestoredImage, Restorer, check_output, restore, with_pixels
from .clip_restorer import ClipRestorer

FrameSource: TypeAlias = VideoFile | FrameFolder


def restore_singly(
    restorer: Restorer,
    tiling: dict[str, Any],
    auxiliary: AuxiliaryInputs,
    source: FrameSource,
    max_memory: int | None = None,
    pool: Pool | None = None,
) -> Iterator[RestoredImage]:
    """Yield the results of a network on images for each frame.

    The workers of a pool restore a bounded number of frames at a time. Without one this process
    does, and runs no tiles again that equal those of the previous frame. The tiling is that of
    `choose_tiling`; files of further inputs in a folder are named like the frames.
    """
    warnings: deque[list[str]] = deque()
    repeats = restorer.without_repeats(source.size, max_memory)

    def jobs() -> Iterator[tuple[ImageData, str, dict[str, Any]]]:
        for name, image in source.frames():
            arrays, more = auxiliary.read(name, image.size)
            warnings.append(more)
            repeats.begin_frame()
            yield image, str(name), {**tiling, "auxiliary": arrays}

    if pool is not None:
        results = _values(pool, (("image", job) for job in jobs()))
    else:
        if not restorer.auxiliary:  # with another mask equal pixels give another result
            restorer = replace(restorer, batches=repeats)
        results = (restore(restorer, image, name, **how) for image, name, how in jobs())
    for restored in results:
        restored.warnings.extend(warnings.popleft())
        yield restored


def share_tiles(network: TiledNetwork, pool: Pool) -> TiledNetwork:
    """Return a network whose tiles are run by the workers, and blended here in their order.

    Each worker runs as many tiles at once as the network would: the results are bit-identical.

    Raises:
        NystraError: The network needs the whole frames, so there are no tiles to share.
    """
    if network.untiled:
        raise NystraError(
            "the model needs the whole frames, so workers cannot share them: run it "
            "without a cluster"
        )

    def batches(_: ImageFunction, parts: Iterable[list[Array]]) -> Iterator[list[Array]]:
        return _values(pool, (("tiles", (part,)) for part in parts))

    return replace(network, batches=batches)


def _values(pool: Pool, calls: Iterator[Call]) -> Iterator[Any]:
    """Yield what the workers return, in order."""
    for result in pool.run(calls, ordered=True):
        if isinstance(result.value, Failed):
            raise NystraError(result.value.error)
        yield result.value


def restore_windows(
    restorer: ClipRestorer, tiling: dict[str, Any], overlap: int | None, source: FrameSource
) -> Iterator[RestoredImage]:
    """Yield the results of a network on frames, run on windows of the video.

    At most the frames of two windows are in memory at once. Tiles and time of a window are those of
    its first frame. Tiling and overlap are those of `choose_tiling` and `plan_windows`.
    """
    windows = plan_windows(source.count, restorer.length, overlap)
    ends = [window.start for window in windows[1:]] + [source.count]
    frames = enumerate(source.frames())
    pending: dict[int, _PendingFrame] = {}
    for window, end in zip(windows, ends, strict=True):
        for index, (name, image) in frames:
            pending[index] = _PendingFrame(str(name), image)
            if index == max(window.indices):
                break
        begin = time.perf_counter()
        tiles = _run_window(restorer, tiling, window, pending)
        seconds = time.perf_counter() - begin
        for index in range(min(pending), end):
            yield pending.pop(index).finish(tiles, seconds)
            tiles, seconds = 0, 0.0


def _run_window(
    restorer: ClipRestorer,
    tiling: dict[str, Any],
    window: Window,
    pending: dict[int, _PendingFrame],
) -> int:
    """Add the results of a window to its frames; return its tiles."""
    frames = [pending[index] for index in window.indices]
    outputs, tiles = restorer([frame.image.pixels for frame in frames], **tiling)
    results = zip(frames, outputs, window.weights, strict=True)
    for frame, output, weight in islice(results, len(pending)):  # a short video is repeated
        if weight > 0:
            frame.sum = frame.sum + output * weight
    return tiles


@dataclass
class _PendingFrame:
    """A frame whose windows have not all been run, and the weighted sum of their results."""

    name: str
    image: ImageData
    sum: Array | float = 0.0

    def finish(self, tiles: int, seconds: float) -> RestoredImage:
        pixels = np.asarray(self.sum)
        warnings = check_output(pixels, self.image.pixels, self.name)
        return RestoredImage(with_pixels(self.image, pixels), tiles, warnings, seconds)


def choose_tiling(
    network: TiledNetwork, size: tuple[int, int], options: RunOptions
) -> dict[str, Any]:
    """Return the tile and the overlap of all frames (H, W), so that seams do not move.

    Raises:
        NystraError: The options contradict the network, or the memory does not suffice.
    """
    minimum = network.size_minimum
    size = (max(size[0], minimum), max(size[1], minimum))
    side, shared = network.choose_tiles(size, size[0] * size[1], **options.tiling)
    if network.untiled or network.fixed_size is not None:
        return {"tile": options.tile, "overlap": options.overlap}
    return {"tile": side if isinstance(side, int) else max(size), "overlap": shared}
