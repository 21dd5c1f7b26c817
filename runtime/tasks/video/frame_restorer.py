"""Restoring frames: one by one or in windows of time, with a bounded number in memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ....core.arrays import Array
from ....core.errors import NystraError
from ...images.image_data import ImageData
from ...pool.calls import Call, Failed, Pool
from ...tiling.run_tiled import ImageFunction
from ...tiling.tiled_network import TiledNetwork
from ...tiling.time_windows import Window, plan_windows
from ...video.clip import Clip, Frame, FrameSource
from ..restoration.auxiliary_roles import AuxiliaryInputs
from ..restoration.options import RunOptions
from ..restoration.restorer import RestoredImage, Restorer, check_output, restore, with_pixels
from .clip_restorer import ClipRestorer

IsWanted = Callable[[int], bool]


@dataclass(frozen=True)
class RestoredFrame:
    """A restored frame.

    Attributes:
        frame: The input frame.
        image: The result.
        seconds: Time of the network.
        tiles: Number of tiles; tiles of several frames are counted for the first one.
        reused: Number of tiles that equal those of the previous frame and were not run again.
        warnings: Warnings about the frame.
    """

    frame: Frame
    image: ImageData
    seconds: float = 0.0
    tiles: int = 0
    reused: int = 0
    warnings: list[str] = field(default_factory=list)


class FrameRestorer(Protocol):
    """Restores the frames of a video."""

    @property
    def scale(self) -> int:
        """Output pixels per input pixel and axis."""
        ...

    def restore(self, source: FrameSource, is_wanted: IsWanted) -> Iterator[RestoredFrame]:
        """Yield the restored frames that are wanted, in order."""
        ...


FrameJob: TypeAlias = tuple[ImageData, str, dict[str, Any]]
"""An image, its name, and how it is restored: the arguments of `restore`."""

FrameRun: TypeAlias = tuple[RestoredImage, float, int]
"""The result of an image, its seconds, and the number of reused tiles."""


@dataclass(frozen=True)
class SingleFrameRestorer:
    """A network on images, run on each frame; unchanged tiles are not run again.

    Attributes:
        restorer: The network.
        tiling: As `fixed_tiling` returns it.
        auxiliary: The files of the further inputs; those in a folder are named like the frames.
        max_memory: Memory limit of this process in bytes; None is the available memory.
        pool: Its workers restore the images; None: one after the other in this process.
    """

    restorer: Restorer
    tiling: dict[str, Any]
    auxiliary: AuxiliaryInputs
    max_memory: int | None = None
    pool: Pool | None = None

    @property
    def scale(self) -> int:
        """Output pixels per input pixel and axis."""
        return self.restorer.scale

    def restore(self, source: FrameSource, is_wanted: IsWanted) -> Iterator[RestoredFrame]:
        """Yield the restored frames that are wanted, in order."""
        under_way: deque[tuple[Frame, list[str]]] = deque()

        def jobs() -> Iterator[FrameJob]:
            for frame in source.frames():
                if is_wanted(frame.index):
                    before, name = frame.load(), source.name(frame.index)
                    auxiliary, warnings = self.auxiliary.read(name, before.size)
                    under_way.append((frame, warnings))
                    yield before, str(name), {**self.tiling, "auxiliary": auxiliary}

        if self.pool is None:
            runs = self._one_by_one(source.clip.size, jobs())
        else:
            runs = _shared(self.pool, jobs())
        for restored, seconds, reused in runs:
            frame, warnings = under_way.popleft()
            warnings = warnings + restored.warnings
            yield RestoredFrame(frame, restored.image, seconds, restored.tiles, reused, warnings)

    def _one_by_one(self, size: tuple[int, int], jobs: Iterator[FrameJob]) -> Iterator[FrameRun]:
        repeats = self.restorer.without_repeats(size, self.max_memory)
        restorer = self.restorer
        if not restorer.auxiliary:  # with another mask equal pixels give another result
            restorer = replace(restorer, batches=repeats)
        for image, name, how in jobs:
            repeats.begin_frame()
            reused, begin = repeats.reused, time.perf_counter()
            restored = restore(restorer, image, name, **how)
            yield restored, time.perf_counter() - begin, repeats.reused - reused


def _shared(pool: Pool, jobs: Iterator[FrameJob]) -> Iterator[FrameRun]:
    """Restore frames by the workers, a bounded number at a time."""
    before = time.perf_counter()
    for restored in _values(pool, (("image", job) for job in jobs)):
        now = time.perf_counter()
        yield restored, now - before, 0
        before = now


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


@dataclass(frozen=True)
class WindowedRestorer:
    """A network on frames, run on windows of the video.

    At most the frames of two windows are in memory at once.

    Attributes:
        restorer: The network.
        tiling: As `fixed_tiling` returns it.
        overlap: Common frames of neighboring windows; None as in `plan_windows`.
    """

    restorer: ClipRestorer
    tiling: dict[str, Any]
    overlap: int | None = None

    @property
    def scale(self) -> int:
        """Output pixels per input pixel and axis."""
        return self.restorer.network.scale

    def restore(self, source: FrameSource, is_wanted: IsWanted) -> Iterator[RestoredFrame]:
        """Yield the restored frames that are wanted, in order.

        Neighboring frames are read too, so that the network gets the same frames as in a full run.
        """
        windows = plan_windows(source.clip.count, self.restorer.length, self.overlap)
        frames = source.frames()
        held: dict[int, _PendingFrame] = {}
        seconds, tiles = 0.0, 0
        for place, window in enumerate(windows):
            last = max(window.indices)
            while len(held) == 0 or max(held) < last:
                frame = next(frames, None)
                if frame is None:
                    raise NystraError(f"{source.path} ends before its frame {last + 1}")
                held[frame.index] = _PendingFrame(frame)
            more_seconds, more_tiles = self._run(window, held, is_wanted)
            seconds, tiles = seconds + more_seconds, tiles + more_tiles
            after = windows[place + 1].start if place + 1 < len(windows) else last + 1
            for index in [index for index in held if index < after]:
                ready = held.pop(index)
                if is_wanted(index):
                    yield ready.finished(source, seconds, tiles)
                    seconds, tiles = 0.0, 0

    def _run(
        self, window: Window, held: dict[int, _PendingFrame], is_wanted: IsWanted
    ) -> tuple[float, int]:
        """Add the results of a window to its frames; return its seconds and tiles."""
        counting = [
            (place, index)
            for place, index in enumerate(window.indices[: len(held)])
            if window.weights[place] > 0 and is_wanted(index)
        ]
        if not counting:
            return 0.0, 0
        clip = [held[index].image.pixels for index in window.indices]
        begin = time.perf_counter()
        outputs, tiles = self.restorer(clip, **self.tiling)
        for place, index in counting:
            held[index].add(outputs[place], window.weights[place])
        return time.perf_counter() - begin, tiles


class _PendingFrame:
    """A frame whose windows have not all been run."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self._image: ImageData | None = None
        self._sum: npt.NDArray[np.float32] | None = None

    @property
    def image(self) -> ImageData:
        if self._image is None:
            self._image = self.frame.load()
        return self._image

    def add(self, pixels: npt.NDArray[np.float32], weight: np.float32) -> None:
        if weight == 1:
            self._sum = pixels
        elif self._sum is None:
            self._sum = pixels * weight
        else:
            self._sum += pixels * weight

    def finished(self, source: FrameSource, seconds: float, tiles: int) -> RestoredFrame:
        assert self._sum is not None  # every frame has a window with a weight above 0
        name = str(source.name(self.frame.index))
        odd = check_output(self._sum, self.image.pixels, name)
        return RestoredFrame(self.frame, with_pixels(self.image, self._sum), seconds, tiles, 0, odd)


def fixed_tiling(network: TiledNetwork, clip: Clip, options: RunOptions) -> dict[str, Any]:
    """Return the tile and the overlap of all frames, so that seams do not move.

    Args:
        network: The network.
        clip: The clip with the frames.
        options: The options, with tile, overlap and memory.

    Raises:
        NystraError: The options contradict the network, or the memory does not suffice.
    """
    least = network.size_minimum
    size = (max(clip.size[0], least), max(clip.size[1], least))
    pixels = size[0] * size[1]
    side, shared = network.choose_tiles(size, pixels, **options.tiling)
    if network.untiled or network.fixed_size is not None:
        return {"tile": options.tile, "overlap": options.overlap}
    return {"tile": side if isinstance(side, int) else max(size), "overlap": shared}
