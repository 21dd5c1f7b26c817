"""Writes packets, and what a video holds besides them, into one file."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

from .accompanying import Accompanying
from .containers import WRITTEN
from .encoding import Encoding, Packet
from .file_source import open_video
from .library import av_errors, load_av


def assemble(
    target: Path,
    encoding: Encoding,
    packets: Callable[[bytes], Iterator[Packet]],
    source: Path | None,
    file: BinaryIO | None = None,
) -> list[str]:
    """Write a video; packets, sound and all else are copied unchanged.

    Args:
        target: The video; its suffix determines the container.
        encoding: The encoding of the packets.
        packets: Takes the header of an encoder's output, returns the packets in decoding order.
        source: A video whose sound, subtitles, chapters, attachments and tags are copied, or None.
        file: A file that is written instead, such as one in memory to try the container.

    Returns:
        What else of the source the container does not hold, one sentence each.

    Raises:
        NystraError: The container does not support the packets or the sound.
        OSError: The file cannot be written, or the disk is full.
    """
    with ExitStack() as stack:
        stream = stack.enter_context(target.open("wb")) if file is None else file
        if source is None:
            _mux(stream, target, encoding, packets, None)
            return []
        container, frames = stack.enter_context(open_video(source))
        others = Accompanying(container, frames)
        kinds = sorted({sound.codec_context.name for sound in container.streams.audio})
        _mux(stream, target, encoding, packets, others, ", ".join(kinds) or "none")
        return others.lost


def _mux(
    file: BinaryIO,
    target: Path,
    encoding: Encoding,
    packets: Callable[[bytes], Iterator[Packet]],
    others: Accompanying | None,
    sound: str = "none",
) -> None:
    av = load_av()
    suffix = target.suffix.lower()
    kind = WRITTEN.get(suffix, "mp4")
    # The edit list counts in this unit: milliseconds by default, which would move the first frame.
    options = {} if kind == "matroska" else {"movie_timescale": str(encoding.time_base.denominator)}
    what = f"{target.name} cannot be written with {encoding.codec} and its sound ({sound})"
    with av_errors(what, "Choose .mkv, which supports every audio codec"):
        container = av.open(file, "w", format=kind, options=options)
        with container:
            stream = encoding.add_to(container)
            if others is not None:
                others.add_to(container, stream, suffix)
            container.start_encoding()
            video = _video(packets(bytes(stream.codec_context.extradata or b"")), encoding, stream)
            copied = iter(()) if others is None else others.packets()
            for _, packet in heapq.merge(video, copied, key=lambda timed: timed[0]):
                container.mux(packet)


def _video(
    packets: Iterator[Packet], encoding: Encoding, stream: Any
) -> Iterator[tuple[Fraction, Any]]:
    """Yield packets with their times; decoding times also ascend between two parts."""
    av = load_av()
    last: int | None = None
    length = round(encoding.frame_ticks)
    for coded in packets:
        packet = av.Packet(coded.data)
        last = coded.dts if last is None else max(coded.dts, last + 1)
        packet.pts, packet.dts, packet.duration = coded.pts, last, length
        packet.time_base = encoding.time_base
        packet.is_keyframe, packet.stream = coded.key, stream
        yield last * encoding.time_base, packet
