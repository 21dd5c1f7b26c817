"""Encodes restored frames as packets of a codec of `CODECS`."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from ...core.arrays import Array
from ...core.errors import BackendUnavailableError
from .accompanying import Accompanying
from .color import NO_LIGHT, Color, Light, from_rgb
from .containers import CODECS, RATED, WRITTEN
from .file_source import open_video, plane_array
from .library import av_errors, load_av

_X264 = "threads=4"
_X265 = "log-level=none:frame-threads=2"
"""The result of the encoders depends on the number of threads, which is therefore fixed."""

_X264_ON_AVX512 = ":asm=avx2"
"""x264's AVX-512 code for its macroblock tree is not deterministic."""
_FIXED = {
    "prores": {"threads": "1"},
    "ffv1": {"threads": "1", "level": "3", "slices": "4", "slicecrc": "1"},
}
_TAGS = {"h264": "avc1", "hevc": "hvc1"}
_LIMITED, _FULL = 1, 2


@dataclass(frozen=True)
class Encoding:
    """Everything that the packets of a video depend on, except for the frames.

    Attributes:
        codec: Name in `CODECS`.
        crf: Its constant rate factor, if it has one.
        size: Height and width.
        color: The encoding of pixels.
        time_base: Seconds per tick of the time stamps.
        rate: Mean frames per second.
        aspect: Width over height of a pixel.
        light: The display that it was graded on.
    """

    codec: str
    crf: int
    size: tuple[int, int]
    color: Color
    time_base: Fraction
    rate: Fraction
    aspect: Fraction = Fraction(1)
    light: Light = NO_LIGHT

    @property
    def frame_ticks(self) -> Fraction:
        """Mean ticks from one frame to the next."""
        return 1 / (self.rate * self.time_base)

    def encoder(self) -> Any:
        """Return PyAV's encoder, open.

        Raises:
            BackendUnavailableError: This PyAV has none for the codec.
        """
        av = load_av()
        try:
            context = av.CodecContext.create(CODECS[self.codec], "w")
        except av.error.FFmpegError as error:
            raise _missing(self.codec) from error
        self._describe(context)
        context.framerate = self.rate
        context.options = self._options()
        context.flags |= av.codec.context.Flags.global_header
        context.open()
        return context

    def add_to(self, container: Any) -> Any:
        """Return a new stream in a container for such packets."""
        stream = container.add_stream(CODECS[self.codec], rate=self.rate, options=self._options())
        stream.time_base = self.time_base
        self._describe(stream.codec_context)
        if container.format.name != "matroska" and self.codec in _TAGS:
            stream.codec_context.codec_tag = _TAGS[self.codec]
        return stream

    def planes(self, pixels: Array, alpha: Array | None = None) -> list[Array]:
        """Return the planes of an image (H, W, 1 or 3) in 0..1, as `frame` takes them."""
        return from_rgb(pixels, self.color, alpha)

    def frame(self, planes: list[Array], time: int) -> Any:
        """Return PyAV's frame of planes.

        Args:
            planes: As `planes` returns them.
            time: Time in ticks.
        """
        frame = load_av().VideoFrame(self.size[1], self.size[0], self.color.pixel_format)
        for plane, values in zip(frame.planes, planes, strict=True):
            plane_array(plane, self.color.bits)[:] = values
        frame.pts, frame.time_base = time, self.time_base
        frame.colorspace = self.color.matrix
        frame.color_range = _FULL if self.color.full else _LIMITED
        return frame

    def _describe(self, context: Any) -> None:
        context.height, context.width = self.size
        context.pix_fmt = self.color.pixel_format
        context.time_base = self.time_base
        context.sample_aspect_ratio = self.aspect
        context.colorspace = self.color.matrix
        context.color_primaries = self.color.primaries
        context.color_trc = self.color.transfer
        context.color_range = _FULL if self.color.full else _LIMITED

    def _options(self) -> dict[str, str]:
        if self.codec not in RATED:
            return _FIXED[self.codec]
        tuning = {"x265-params": _X265}
        if self.codec == "h264":
            tuning = {"x264-params": _X264 + (_X264_ON_AVX512 if has_avx512() else "")}
        light = self.light.params(self.codec)
        tuning = {name: text + light for name, text in tuning.items()}
        return {"crf": str(self.crf), "preset": "medium", **tuning}


@dataclass(frozen=True)
class Packet:
    """One encoded frame.

    Attributes:
        pts: Display time in ticks.
        dts: Decoding time in ticks.
        key: Decoding may begin here.
        data: The bytes.
    """

    pts: int
    dts: int
    key: bool
    data: bytes

    @classmethod
    def all_of(cls, packets: Any) -> Iterator[Packet]:
        """Convert packets of PyAV."""
        for packet in packets:
            yield cls(packet.pts, packet.dts, bool(packet.is_keyframe), bytes(packet))


def with_decoding_times(packets: list[Packet], longest: Fraction) -> list[Packet]:
    """Return packets, in decoding order, with the encoder's decoding times where they are times.

    x265 does not initialize those of a video that is shorter than its delay. They are then the
    display times in ascending order, all earlier by as much as the packets need.

    Args:
        packets: Of one encoder, from its first to its last.
        longest: The most ticks between the decoding and the display of a frame, beside the length
            of the video, whose frames may be apart by any time.
    """
    times, shown = [packet.dts for packet in packets], sorted(packet.pts for packet in packets)
    if times == sorted(times) and all(
        shown[0] - shown[-1] - longest <= packet.dts - packet.pts <= 0 for packet in packets
    ):
        return packets
    delay = max(time - packet.pts for time, packet in zip(shown, packets, strict=True))
    return [replace(packet, dts=time - delay) for time, packet in zip(shown, packets, strict=True)]


def _missing(codec: str) -> BackendUnavailableError:
    return BackendUnavailableError(
        f"this PyAV cannot write {codec} ({CODECS[codec]}): pip install --force-reinstall av, or "
        "use the other `codec`, or a folder as the output"
    )


@cache
def has_avx512() -> bool:
    """Return whether the processor has AVX-512, as numpy detected; False if unknown."""
    for package in ("numpy._core", "numpy.core"):  # of numpy 2 and 1
        with suppress(ImportError, AttributeError):
            features = import_module(f"{package}._multiarray_umath").__cpu_features__
            return bool(features.get("AVX512F"))
    return False


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
