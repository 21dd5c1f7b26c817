"""Writes packets and sound into one file."""

from __future__ import annotations

import heapq
import io
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

from .encoding import Encoding, Packet
from .file_source import open_video
from .library import av_errors, load_av

_FORMATS = {".mkv": "matroska", ".mov": "mov"}


def assemble(
    place: Path,
    encoding: Encoding,
    packets: Callable[[bytes], Iterator[Packet]],
    sound: Path | None,
) -> None:
    """Write a video; packets and sound are copied unchanged.

    Args:
        place: The file; its suffix determines the container.
        encoding: The encoding of the packets.
        packets: Takes the header of an encoder's output, returns the packets in decoding order.
        sound: A video whose sound is copied, or None.

    Raises:
        NystraError: The container does not support the packets or the sound.
        OSError: The file cannot be written, or the disk is full.
    """
    with place.open("wb") as file:
        _write(file, place, encoding, packets, sound)


def check_container(target: Path, encoding: Encoding, sound: Path | None) -> None:
    """Begin a file in memory, to check that the container supports the codec and the sound.

    Raises:
        NystraError: It does not.
    """
    _write(io.BytesIO(), target, encoding, lambda _: iter(()), sound)


def _write(
    file: BinaryIO,
    target: Path,
    encoding: Encoding,
    packets: Callable[[bytes], Iterator[Packet]],
    sound: Path | None,
) -> None:
    if sound is None:
        _mux(file, target, encoding, packets, [], iter(()))
        return
    with open_video(sound) as (container, _):
        streams = list(container.streams.audio)
        _mux(file, target, encoding, packets, streams, _sound(container, streams))


def _mux(
    file: BinaryIO,
    target: Path,
    encoding: Encoding,
    packets: Callable[[bytes], Iterator[Packet]],
    streams: list[Any],
    sound: Iterator[tuple[Fraction, Any]],
) -> None:
    av = load_av()
    kind = _FORMATS.get(target.suffix.lower(), "mp4")
    # The edit list counts in this unit: milliseconds by default, which would move the first frame.
    options = {} if kind == "matroska" else {"movie_timescale": str(encoding.time_base.denominator)}
    kinds = ", ".join(sorted({stream.codec_context.name for stream in streams})) or "none"
    what = f"{target.name} cannot be written with {encoding.codec} and its sound ({kinds})"
    with av_errors(what, "Choose .mkv, which supports every audio codec"):
        container = av.open(file, "w", format=kind, options=options)
        with container:
            stream = encoding.add_to(container)
            copies = {track.index: container.add_stream_from_template(track) for track in streams}
            container.start_encoding()
            video = _video(packets(bytes(stream.codec_context.extradata or b"")), encoding)
            for _, packet in heapq.merge(video, sound, key=lambda timed: timed[0]):
                packet.stream = stream if packet.stream is None else copies[packet.stream.index]
                container.mux(packet)


def _video(packets: Iterator[Packet], encoding: Encoding) -> Iterator[tuple[Fraction, Any]]:
    """Yield packets with their times; decoding times also ascend between two parts."""
    av = load_av()
    last: int | None = None
    length = round(1 / (encoding.rate * encoding.time_base))
    for coded in packets:
        packet = av.Packet(coded.data)
        last = coded.dts if last is None else max(coded.dts, last + 1)
        packet.pts, packet.dts, packet.duration = coded.pts, last, length
        packet.time_base = encoding.time_base
        packet.is_keyframe = coded.key
        yield last * encoding.time_base, packet


def _sound(container: Any, streams: list[Any]) -> Iterator[tuple[Fraction, Any]]:
    if not streams:
        return
    for packet in container.demux(streams):
        if packet.dts is not None and packet.size:
            yield packet.dts * packet.time_base, packet
