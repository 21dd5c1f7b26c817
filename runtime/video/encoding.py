"""Encodes restored frames as packets of a codec of `CODECS`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from importlib import import_module
from typing import Any

from ...core.arrays import Array
from ...core.errors import BackendUnavailableError
from .codecs import CODECS, RATED
from .color import Color, from_rgb
from .file_source import plane_array
from .library import load_av
from .light import NO_LIGHT, Light

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
