"""Exact attention takes the place of a network's own only where that is measured to be slower."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import onnx

from ..core.arrays import Array
from ..core.errors import ExportError
from ..core.files.scratch import scratch_folder
from ..runtime.session import Session
from .attention.full.parameters import Full
from .attention.mechanism import Mechanism

SIDE = 128
"""Side of the image that is timed, if the network takes any size."""

_ROUNDS, _SECONDS = 9, 2.0
"""Fewest runs of each, and seconds for further runs."""

_FEWEST_ROUNDS, _LONGEST = 3, 12.0
"""Seconds from which on a run is repeated less often, and how often."""

_MOST_ROUNDS = 30

_GAIN = 0.9
"""Share of its time that a replaced piece may take by itself: in the whole file the gain is
smaller, since onnxruntime fuses the original nodes with their neighbours."""


@dataclass(frozen=True)
class Timed:
    """The same as it was and with nodes of nystra in it, each with its bodies.

    Attributes:
        own: As it was.
        replaced: With nodes of nystra.
        feeds: What both take; one may take less.
    """

    own: onnx.ModelProto
    replaced: onnx.ModelProto
    feeds: Mapping[str, Array]


@dataclass(frozen=True)
class Piece:
    """Part of a network that has a replacement.

    Attributes:
        sites: Paths of the sites in it.
        kind: Pieces of one kind take the same time.
        timed: Returns what is to be timed.
    """

    sites: tuple[str, ...]
    kind: str
    timed: Callable[[], Timed]


class Replaceable(Protocol):
    """A network whose attention may stay as it was."""

    @property
    def source(self) -> str:
        """Where that attention is, for reasons: ``the file``."""

    @property
    def left(self) -> dict[str, str]:
        """Why sites stay so although they have exact attention, by path."""

    @property
    def is_written(self) -> bool:
        """Whether its own whole is a file that is there: a trace of it takes longer than all."""

    def pieces(self, paths: set[str]) -> list[Piece]:
        """Return the pieces all of whose sites are among the paths."""

    def whole(self, paths: set[str]) -> Timed:
        """Return the whole, with those sites replaced and no others."""


def keep_what_pays(
    network: Replaceable, resolved: Mapping[str, Mechanism], progress: Callable[[str], None]
) -> dict[str, Mechanism]:
    """Return a plan in which what does not pay has its reason; ``left`` gets these.

    Measured is what is planned to be exact, with the library where there is one, in interleaved
    runs: each kind of piece, then all that pay together, where the whole is written already or
    some of them have no graph by themselves.

    Args:
        network: Of which.
        resolved: Mechanism of every site.
        progress: Called with what is measured.
    """
    network.left.clear()
    exact = {path for path, mechanism in resolved.items() if isinstance(mechanism, Full)}
    kinds: dict[str, list[Piece]] = {}
    for piece in network.pieces(exact):
        kinds.setdefault(piece.kind, []).append(piece)
    alone = True
    for number, pieces in enumerate(kinds.values(), 1):
        progress(f"{number}/{len(kinds)} time the attention of {network.source}")
        try:
            timed = pieces[0].timed()
        except ExportError:  # by itself it has no graph: it is timed with the whole
            alone = False
            continue
        if reason := _reason(timed, network.source):
            network.left.update((path, reason) for piece in pieces for path in piece.sites)
    paths = {path for pieces in kinds.values() for piece in pieces for path in piece.sites}
    kept = paths - network.left.keys()
    if kept and (network.is_written or not alone):
        progress(f"time {network.source} with its attention replaced")
        if reason := _reason_of_all(network.whole(kept), network.source):
            network.left.update((path, reason) for path in sorted(kept))
    return {
        path: replace(mechanism, reason=network.left.get(path, mechanism.reason))
        for path, mechanism in resolved.items()
    }


def left_sentences(left: Mapping[str, str]) -> list[str]:
    """Return one sentence for each reason why sites stay as they were."""
    groups: dict[str, list[str]] = {}
    for path, reason in left.items():
        groups.setdefault(reason, []).append(path)
    return [f"{len(paths)} sites, {paths[0]} first, stay {why}" for why, paths in groups.items()]


def _reason(piece: Timed, source: str) -> str:
    """Return why a piece stays as it was, or ""."""
    seconds = _interleaved(piece)
    ratio = _ratio(seconds)
    if ratio <= _GAIN:
        return ""
    return (
        f"unchanged from {source}: an equivalent node took {ratio:.2f} times as long "
        f"({1e3 * min(seconds[1]):.2g} ms, its own nodes {1e3 * min(seconds[0]):.2g} ms)"
    )


def _reason_of_all(whole: Timed, source: str) -> str:
    """Return why all exact pieces together do not pay, or ""."""
    ratio = _ratio(_interleaved(whole))
    if ratio <= 1.0:
        return ""
    return (
        f"unchanged from {source}: with equivalent nodes the whole file took {ratio:.2f} times "
        "as long"
    )


def _ratio(seconds: Sequence[Sequence[float]]) -> float:
    """Return how many times the seconds of the first the second takes.

    It is the median of the turns or the ratio of the least seconds, whichever is larger: on a busy
    machine one of them alone may be anything.
    """
    first, second = seconds
    turns = statistics.median(b / max(a, 1e-12) for a, b in zip(first, second, strict=True))
    return max(turns, min(second) / max(min(first), 1e-12))


def _interleaved(timed: Timed) -> list[list[float]]:
    """Return seconds of runs of both, in turns."""
    with scratch_folder() as folder:
        sessions, feeds = [], []
        for number, model in enumerate((timed.own, timed.replaced)):
            path = folder / f"{number}.onnx"
            path.write_bytes(model.SerializeToString())
            sessions.append(Session(path))
            feeds.append({value.name: timed.feeds[value.name] for value in model.graph.input})
            sessions[-1].run(feeds[-1])
        seconds: list[list[float]] = [[] for _ in sessions]
        begun = time.perf_counter()
        while not _enough(len(seconds[0]), time.perf_counter() - begun):
            for session, given, own in zip(sessions, feeds, seconds, strict=True):
                start = time.perf_counter()
                session.run(given)
                own.append(time.perf_counter() - start)
        return seconds


def _enough(rounds: int, seconds: float) -> bool:
    if rounds < _ROUNDS:
        return rounds >= _FEWEST_ROUNDS and seconds > _LONGEST
    return rounds >= _MOST_ROUNDS or seconds > _SECONDS
