"""Replaces a network's own exact attention only where it is measured to be slower."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import onnx

from ..core.arrays import Array
from ..core.errors import ExportError
from ..core.files.scratch import scratch_folder
from ..core.text import counted, milliseconds
from ..runtime.session import Session
from ..runtime.timing.turns import timed_in_turns
from .attention.full.parameters import Full
from .attention.mechanism import Mechanism
from .execute.parts import taken_inputs

SIDE = 128
"""Side of the image that is timed, if the network takes any size."""

_ROUNDS = 5
"""Fewest runs of each."""

_MOST_ROUNDS, _SECONDS = 40, 4.0
"""Most runs of each and seconds for them, while the ratio is near the limit."""

_FEWEST_ROUNDS, _LONGEST = 3, 12.0
"""Seconds from which on a run is repeated less often, and how often."""

_NEAR = 1.15
"""A ratio is near a limit if it is less than this factor away."""

_LONG = 2.0
"""Seconds of all replaced attention from which on the whole file is not timed beside its pieces:
runs of it would take minutes, and what attention gains there is more than any fusion."""

_GAIN = 0.9
"""Share of its time that a replaced piece may take by itself: in the whole file the gain is
smaller, since onnxruntime fuses the original nodes with their neighbors."""


@dataclass(frozen=True)
class Timed:
    """Two models to compare, with the bodies of their operators.

    Attributes:
        own: The original.
        replaced: The one with nodes of nystra.
        feeds: Inputs of both; one may need fewer.
    """

    own: onnx.ModelProto
    replaced: onnx.ModelProto
    feeds: Mapping[str, Array]


@dataclass(frozen=True)
class Piece:
    """A part of a network with a replacement.

    Attributes:
        sites: Paths of its sites.
        kind: Pieces of one kind take the same time.
        timed: Returns the models to time.
    """

    sites: tuple[str, ...]
    kind: str
    timed: Callable[[], Timed]


class Replaceable(Protocol):
    """A network that may keep its own attention."""

    @property
    def source(self) -> str:
        """The origin of that attention, for messages: ``the file``."""

    @property
    def left(self) -> dict[str, str]:
        """Why sites with exact attention keep the network's own, by path."""

    @property
    def is_written(self) -> bool:
        """Whether the original is a file already; tracing all of it would take longest."""

    def pieces(self, paths: set[str]) -> list[Piece]:
        """Return the pieces all of whose sites are among the paths."""

    def whole(self, paths: set[str]) -> Timed:
        """Return the whole network, with only these sites replaced."""


def keep_faster(
    network: Replaceable, resolved: Mapping[str, Mechanism], progress: Callable[[str], None]
) -> dict[str, Mechanism]:
    """Return a plan with reasons for sites that are not faster; ``left`` gets these too.

    Sites that are planned to be exact are measured, with the library if there is one, in
    interleaved runs: each kind of piece, then all faster pieces together, if some pieces cannot be
    traced alone, or the whole exists as a file and its attention takes less than two seconds.

    Args:
        network: The network.
        resolved: Mechanism of every site.
        progress: Called with what is measured.
    """
    network.left.clear()
    exact = {path for path, mechanism in resolved.items() if isinstance(mechanism, Full)}
    kinds: dict[str, list[Piece]] = {}
    for piece in network.pieces(exact):
        kinds.setdefault(piece.kind, []).append(piece)
    alone, seconds = True, 0.0
    for number, pieces in enumerate(kinds.values(), 1):
        progress(f"{number}/{len(kinds)} time the attention of {network.source}")
        try:
            timed = pieces[0].timed()
        except ExportError:  # it cannot be traced alone: it is timed with the whole
            alone = False
            continue
        times = _interleaved(timed, _GAIN)
        if reason := _reason(times, network.source):
            network.left.update((path, reason) for piece in pieces for path in piece.sites)
        else:
            seconds += len(pieces) * min(times[0])
    paths = {path for pieces in kinds.values() for piece in pieces for path in piece.sites}
    kept = paths - network.left.keys()
    if kept and (not alone or (network.is_written and seconds < _LONG)):
        progress(f"time {network.source} with its attention replaced")
        if reason := _reason_of_all(network.whole(kept), network.source):
            network.left.update((path, reason) for path in sorted(kept))
    return {
        path: replace(mechanism, reason=network.left.get(path, mechanism.reason))
        for path, mechanism in resolved.items()
    }


def left_sentences(left: Mapping[str, str]) -> list[str]:
    """Return one sentence for each reason why sites keep the network's own attention."""
    groups: dict[str, list[str]] = {}
    for path, reason in left.items():
        groups.setdefault(reason, []).append(path)
    return [
        f"{counted(len(paths), 'site')} (first {paths[0]}) not replaced, {why}"
        for why, paths in groups.items()
    ]


def _reason(seconds: Sequence[Sequence[float]], source: str) -> str:
    """Return why a piece is not replaced, by the times of both, or ""."""
    ratio = max(_ratios(seconds))
    if ratio <= _GAIN:
        return ""
    return (
        f"unchanged from {source}: nystra's node took {ratio:.2f} times as long "
        f"({milliseconds(min(seconds[1]))}, its own nodes {milliseconds(min(seconds[0]))})"
    )


def _reason_of_all(whole: Timed, source: str) -> str:
    """Return why all exact pieces together are not faster, or ""."""
    ratio = max(_ratios(_interleaved(whole, 1.0)))
    if ratio <= 1.0:
        return ""
    return (
        f"unchanged from {source}: with nystra's nodes the whole file took {ratio:.2f} times "
        "as long"
    )


def _ratios(seconds: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the ratio of the second time to the first: median over the rounds, of the shortest.

    The larger one decides: on a busy machine one of them alone is not reliable.
    """
    first, second = seconds
    turns = statistics.median(b / max(a, 1e-12) for a, b in zip(first, second, strict=True))
    return turns, min(second) / max(min(first), 1e-12)


def _interleaved(timed: Timed, limit: float) -> list[list[float]]:
    """Return the times of interleaved runs of both, in seconds; most runs near the limit."""
    with scratch_folder() as folder:
        runs: dict[str, Callable[[], object]] = {}
        for number, model in enumerate((timed.own, timed.replaced)):
            path = folder / f"{number}.onnx"
            path.write_bytes(model.SerializeToString())
            feeds = {value.name: timed.feeds[value.name] for value in taken_inputs(model)}
            runs[path.name] = partial(Session(path).run, feeds)
            runs[path.name]()
        begun = time.perf_counter()

        def active(times: Mapping[str, Sequence[float]]) -> Sequence[str]:
            enough = _enough([*times.values()], time.perf_counter() - begun, limit)
            return [] if enough else [*runs]

        return [*timed_in_turns(runs, active).values()]


def _enough(times: Sequence[Sequence[float]], seconds: float, limit: float) -> bool:
    """Whether runs of some seconds in all tell on which side of a limit their ratio is."""
    rounds = len(times[0])
    if rounds < _ROUNDS:
        return rounds >= _FEWEST_ROUNDS and seconds > _LONGEST
    if rounds >= _MOST_ROUNDS or seconds > _SECONDS:
        return True
    ratios = _ratios(times)
    return max(ratios) < limit / _NEAR or min(ratios) > limit * _NEAR
