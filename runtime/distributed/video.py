"""A video whose frames are restored by all workers and written here in order."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...core.arrays import Array
from ...core.errors import NystraError
from ..session import Session
from ..tasks.restoration.options import RunOptions
from ..tasks.video.frame_restorer import (
    FrameRestorer,
    IsWanted,
    RestoredFrame,
    SingleFrameRestorer,
    WindowedRestorer,
)
from ..tasks.video.options import VideoOptions
from ..tasks.video.run import frame_restorer_for
from ..tiling.run_tiled import ImageFunction
from ..tiling.tiled_network import TiledNetwork
from ..video.clip import Frame, FrameSource
from .worker import Failed
from .worker_pool import Call, WorkerPool


def distributed_restorer_for(
    pool: WorkerPool,
    session: Session,
    source: FrameSource,
    options: RunOptions,
    video: VideoOptions,
) -> FrameRestorer:
    """Return what restores the frames of a source with all workers.

    For a network of single images each worker gets a frame; for one of several frames the workers
    share the tiles of each window.

    Raises:
        NystraError: As `frame_restorer_for` and `distribute_tiles`.
    """
    restorer = frame_restorer_for(session, source, options, video)
    if isinstance(restorer, WindowedRestorer):
        network = distribute_tiles(restorer.restorer.network, pool)
        return replace(restorer, restorer=replace(restorer.restorer, network=network))
    assert isinstance(restorer, SingleFrameRestorer)  # there are these two
    return _DistributedFrames(restorer, pool)


@dataclass(frozen=True)
class _DistributedFrames:
    """Frames that go to the workers, a bounded number at a time."""

    local: SingleFrameRestorer
    pool: WorkerPool

    @property
    def scale(self) -> int:
        """Output pixels per input pixel and axis."""
        return self.local.scale

    def restore(self, source: FrameSource, is_wanted: IsWanted) -> Iterator[RestoredFrame]:
        """Yield the restored frames that are wanted, in order."""
        under_way: dict[int, tuple[Frame, list[str]]] = {}
        before = time.perf_counter()
        for result in self.pool.run(self._calls(source, is_wanted, under_way), ordered=True):
            frame, warnings = under_way.pop(result.place)
            if isinstance(result.value, Failed):
                raise NystraError(result.value.error)
            restored = result.value
            now = time.perf_counter()
            warnings = warnings + restored.warnings
            yield RestoredFrame(
                frame, restored.image, now - before, restored.tiles, warnings=warnings
            )
            before = now

    def _calls(
        self,
        source: FrameSource,
        is_wanted: IsWanted,
        under_way: dict[int, tuple[Frame, list[str]]],
    ) -> Iterator[Call]:
        wanted = (frame for frame in source.frames() if is_wanted(frame.index))
        for place, frame in enumerate(wanted):
            image, name = frame.load(), source.name(frame.index)
            auxiliary, warnings = self.local.auxiliary.read(name, image.size)
            under_way[place] = frame, warnings
            how: dict[str, Any] = {**self.local.tiling, "auxiliary": auxiliary}
            yield "image", (image, str(name), how)


def distribute_tiles(network: TiledNetwork, pool: WorkerPool) -> TiledNetwork:
    """Return a network whose tiles are run by the workers, and blended here in their order.

    Each worker runs as many tiles at once as the network would: the results are bit-identical.

    Raises:
        NystraError: The network needs the whole frames, so there are no tiles to distribute.
    """
    if network.whole:
        raise NystraError(
            "the model needs the whole frames, so workers cannot share them: run it "
            "without a cluster"
        )

    def batches(_: ImageFunction, parts: Iterable[list[Array]]) -> Iterator[list[Array]]:
        for result in pool.run((("tiles", (part,)) for part in parts), ordered=True):
            if isinstance(result.value, Failed):
                raise NystraError(result.value.error)
            yield result.value

    return replace(network, batches=batches)
