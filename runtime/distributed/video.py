"""A video whose frames are restored by all workers, and put together here in their order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...core.errors import NystraError
from ..session import Session
from ..tasks.restoration.options import RunOptions
from ..tasks.video.frame_restorer import InWindows, Made, Maker, OneByOne, Wants
from ..tasks.video.options import VideoOptions
from ..tasks.video.run import frame_maker
from ..video.clip import Frame, Source
from .tiles import spread_tiles
from .worker import Failed
from .worker_pool import Crew, Task


def spread_maker(
    crew: Crew, session: Session, source: Source, options: RunOptions, video: VideoOptions
) -> Maker:
    """Return what restores the frames of a source with all workers.

    A network on single pictures is given a frame a worker. Of one on several frames the workers
    share the tiles of each window.

    Raises:
        NystraError: As `frame_maker` and `spread_tiles`.
    """
    made = frame_maker(session, source, options, video)
    if isinstance(made, InWindows):
        clips = replace(made.restorer, network=spread_tiles(made.restorer.network, crew))
        return replace(made, restorer=clips)
    assert isinstance(made, OneByOne)  # there are these two
    return _Frames(made, crew)


@dataclass(frozen=True)
class _Frames:
    """Frames that go to the workers, a bounded number at a time."""

    here: OneByOne
    crew: Crew

    @property
    def scale(self) -> int:
        """Output pixels per input pixel and axis."""
        return self.here.scale

    def make(self, source: Source, wants: Wants) -> Iterator[Made]:
        """Yield the restored frames that are wanted, in order."""
        under_way: dict[int, tuple[Frame, list[str]]] = {}
        before = time.perf_counter()
        for outcome in self.crew.run(self._tasks(source, wants, under_way), ordered=True):
            frame, doubts = under_way.pop(outcome.place)
            if isinstance(outcome.value, Failed):
                raise NystraError(outcome.value.error)
            restored = outcome.value
            now = time.perf_counter()
            warnings = doubts + restored.warnings
            yield Made(frame, restored.picture, now - before, restored.tiles, warnings)
            before = now

    def _tasks(
        self, source: Source, wants: Wants, under_way: dict[int, tuple[Frame, list[str]]]
    ) -> Iterator[Task]:
        wanted = (frame for frame in source.frames() if wants(frame.index))
        for place, frame in enumerate(wanted):
            picture, name = frame.load(), source.name(frame.index)
            auxiliary, doubts = self.here.auxiliary.read(name, picture.size)
            under_way[place] = frame, doubts
            how: dict[str, Any] = {**self.here.tiling, "auxiliary": auxiliary}
            yield "picture", (picture, str(name), how)
