"""Checks of a video file before it is processed, without decoding it.

Defects of a file are reported here, before hours are spent on its frames.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ...core.errors import NystraError

_HEAD = 8
_TO_THE_END, _LONG = 0, 1
"""Lengths of boxes of mp4 that have a meaning of their own."""

_MAX_FRAMES = 10_000_000
_SHORT = 0.25
"""Seconds by which streams may end before the duration in the file."""


@dataclass(frozen=True)
class Times:
    """The display times of the frames of a video.

    Attributes:
        stamps: In ticks, ascending.
        even: All frames are shown for the same time, up to two ticks of rounding.
        rate: Mean frames per second, from the file or from the time stamps.
    """

    stamps: npt.NDArray[np.int64]
    even: bool
    rate: Fraction


def survey(container: Any, stream: Any, path: Path) -> Times:
    """Read all packets of a file and return the display times of its frames.

    Args:
        container: A container of PyAV, open for reading.
        stream: Its video stream.
        path: For the messages.

    Raises:
        NystraError: The file is truncated, or its frames have no time stamps or equal ones.
    """
    stamps: list[int] = []
    end = 0.0
    for packet in _packets(container):
        if packet.pts is None:
            if packet.stream.index == stream.index:
                raise _untimed(path, len(stamps))
            continue
        last = float((packet.pts + (packet.duration or 0)) * packet.time_base)
        end = max(end, last)
        if packet.stream.index == stream.index:
            if packet.is_corrupt:
                raise _cut(path, len(stamps), stream.frames)
            stamps.append(packet.pts)
            if len(stamps) > _MAX_FRAMES:
                raise NystraError(f"the video {path} has over {_MAX_FRAMES} frames: cut it first")
    if not stamps:
        raise NystraError(f"the video {path} has no frames: expected at least one")
    stated = ((container.start_time or 0) + (container.duration or 0)) / 1e6
    if len(stamps) < stream.frames or end < stated - _SHORT:
        raise _cut(path, len(stamps), stream.frames)
    return _times(np.sort(np.array(stamps, np.int64)), stream, path)


def _packets(container: Any) -> Iterator[Any]:
    for packet in container.demux():
        if packet.size and not packet.is_discard:
            yield packet


def _times(stamps: npt.NDArray[np.int64], stream: Any, path: Path) -> Times:
    steps = np.diff(stamps)
    if steps.size and int(steps.min()) <= 0:
        raise _untimed(path, int(np.argmin(steps)) + 1)
    even = not steps.size or int(steps.max() - steps.min()) <= 2
    rate = stream.average_rate
    if steps.size and (not rate or not even or not 0 < rate <= 1000):
        rate = Fraction(int(steps.size), int(stamps[-1] - stamps[0])) / stream.time_base
    return Times(stamps, even, Fraction(rate or 25).limit_denominator(100_000))


def _untimed(path: Path, index: int) -> NystraError:
    return NystraError(
        f"frame {index + 1} of the video {path} has no time stamp: rewrite the file with another "
        "program (such as ffmpeg -i IN -c copy OUT.mkv) first"
    )


def _cut(path: Path, count: int, stated: int) -> NystraError:
    of = f" of {stated}" if stated > count else ""
    return NystraError(
        f"the video {path} is truncated: it ends after frame {count}{of}. Copy it again, or save "
        "the rest with another program (such as ffmpeg -i IN -c copy OUT.mkv) first"
    )


def check_boxes(file: BinaryIO, path: Path) -> None:
    """Check that the last box of an mp4 is complete, since decoders read a part in silence.

    The layout is that of ISO/IEC 14496-12 (section 4.2).

    Args:
        file: The file; it is left at its beginning.
        path: For the messages.

    Raises:
        NystraError: It is truncated, or the length of a box is invalid.
    """
    length = file.seek(0, os.SEEK_END)
    position = 0
    while position + _HEAD <= length:
        file.seek(position)
        size = struct.unpack(">I", file.read(_HEAD)[:4])[0]
        if size == _TO_THE_END:
            break
        if size == _LONG:
            size = struct.unpack(">Q", file.read(8).ljust(8, b"\xff"))[0]
        if size < _HEAD:
            raise NystraError(f"the video {path} is damaged: one of its boxes has {size} bytes")
        position += size
    file.seek(0)
    if position > length:
        raise NystraError(
            f"the video {path} is truncated: its last {position - length} bytes are missing"
        )
