"""The frames of a video file, by PyAV."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import NystraError
from ..images.image_data import ImageData
from .clip import Clip, Color, Frame
from .containers import REPAIR, av_errors, describe, open_video
from .rgb import MATRICES, Converter, to_image

_MAX_FRAMES = 10_000_000
_UNSPECIFIED, _FULL = 2, 2
"""The numbers of unspecified colors, and of the full range."""
_HDR = {16: "PQ", 18: "HLG"}
_SHORT = 0.25
"""Seconds by which the streams may end before the duration in the file."""
_LOST = {
    "DOVI": "Dolby Vision metadata",
    "DYNAMIC_HDR": "dynamic HDR metadata",
    "MASTERING_DISPLAY": "HDR mastering display",
    "CONTENT_LIGHT": "HDR light levels",
    "A53_CC": "closed captions",
    "STEREO3D": "3D metadata",
    "S12M_TIMECODE": "time codes",
    "SPHERICAL": "360-degree metadata",
    "ICC_PROFILE": "color profile",
}
"""What else frames may hold, which the encoders do not get: how FFmpeg's name begins, and words."""


class VideoFile:
    """A file in a container of `containers`, detected from its content.

    Attributes:
        path: The file.
        clip: Its properties.
    """

    def __init__(self, path: Path) -> None:
        """Read the times of all frames, and decode the first one.

        Raises:
            NystraError: It is missing, not a video, damaged, truncated or too large.
            BackendUnavailableError: PyAV is missing.
        """
        self.path = path
        with open_video(path) as (container, stream):
            self._times = _read_times(container, stream, path)
        with open_video(path) as (container, stream):
            first = next(self._decode(container, stream), None)
            if first is None:
                raise NystraError(f"the video {path} has no frame that can be decoded. {REPAIR}")
            color = _color(first, stream, path)
            aspect = stream.codec_context.sample_aspect_ratio or Fraction(1)
            size = (first.height, first.width)
            self._first, self._to_rgb = _kind(first), _rgb_converter(first, color)
            self._quarter_turns = round(float(first.rotation or 0) / 90) % 4
            if self._quarter_turns % 2:
                size, aspect = size[::-1], 1 / aspect
            self.clip = Clip(
                len(self._times),
                size,
                color,
                stream.time_base,
                Fraction(stream.average_rate or stream.guessed_rate or 25),
                aspect,
                tuple(_besides(container, stream, color, self._times)),
                tuple(_warnings(first, stream, color)),
            )

    def frames(self) -> Iterator[Frame]:
        """Yield all frames in display order.

        Raises:
            NystraError: One is damaged or of another size, or the last ones are missing.
        """
        count = 0
        with open_video(self.path) as (container, stream):
            for frame in self._decode(container, stream):
                if _kind(frame) != self._first:
                    raise NystraError(
                        f"frame {count + 1} of {self.path} is {_kind(frame)}, the first one "
                        f"{self._first}: expected frames of one size and format; cut the video "
                        "there first"
                    )
                # The frames of avi have no times of their own.
                time = self._times[min(count, len(self._times) - 1)]
                yield Frame(count, time, partial(self._image, frame))
                count += 1
        if count < self.clip.count:
            raise NystraError(
                f"{self.clip.count - count} of the {self.clip.count} frames of {self.path} cannot "
                f"be decoded: {REPAIR}"
            )

    def name(self, index: int) -> Path:
        """Return a file name for a frame, counted from 1."""
        return Path(f"frame_{index + 1:06d}.png")

    def _decode(self, container: Any, stream: Any) -> Iterator[Any]:
        frames = container.decode(stream)
        for number in itertools.count(1):
            what = f"frame {number} of the video {self.path} is damaged"
            with av_errors(what, REPAIR):
                frame = next(frames, None)
            if frame is None:
                return
            if frame.is_corrupt:
                raise NystraError(f"{what}. {REPAIR}")
            yield frame

    def _image(self, frame: Any) -> ImageData:
        converted = not frame.format.is_rgb
        return to_image(
            self._to_rgb(frame), self.clip.color, self._quarter_turns, converted=converted
        )


def default_matrix(height: int) -> int:
    """Return the matrix of a video without a tag: BT.709 from 720 lines on, otherwise BT.601."""
    return 1 if height >= 720 else 6


def _kind(frame: Any) -> str:
    return f"{frame.width}x{frame.height} {frame.format.name}"


def _rgb_converter(first: Any, color: Color) -> Any:
    """Return what converts frames like the first one to RGB of 16 bits."""
    target = "rgba64le" if color.alpha else "rgb48le"
    if first.format.is_rgb:
        return lambda frame: frame.reformat(format=target)
    size = (first.height, first.width)
    return Converter(size, first.format.name, target, color, first.time_base)


def _read_times(container: Any, stream: Any, path: Path) -> list[int]:
    """Return the times of all frames in ticks, ascending.

    Raises:
        NystraError: The file is truncated, or its frames have no times or equal ones.
    """
    times: list[int] = []
    end = 0.0
    for packet in container.demux():
        if not packet.size or packet.is_discard or packet.pts is None:
            continue
        end = max(end, float((packet.pts + (packet.duration or 0)) * packet.time_base))
        if packet.stream.index == stream.index:
            times.append(packet.pts)
        if len(times) > _MAX_FRAMES:
            raise NystraError(f"the video {path} has over {_MAX_FRAMES} frames: cut it first")
    if not times or len(set(times)) < len(times):
        raise NystraError(
            f"the video {path} has no frames, or two without time stamps of their own: rewrite it "
            "with another program (such as ffmpeg -i IN -c copy OUT.mkv) first"
        )
    stated = ((container.start_time or 0) + (container.duration or 0)) / 1e6
    if len(times) < stream.frames or end < stated - _SHORT:
        raise NystraError(
            f"the video {path} is truncated: it ends after frame {len(times)}. Copy it again, or "
            "save the rest with another program (such as ffmpeg -i IN -c copy OUT.mkv) first"
        )
    return sorted(times)


def _color(frame: Any, stream: Any, path: Path) -> Color:
    context, components = stream.codec_context, frame.format.components
    name, is_rgb = frame.format.name, frame.format.is_rgb
    matrix = int(frame.colorspace)
    if is_rgb or matrix in (_UNSPECIFIED, 0):
        matrix = default_matrix(frame.height)
    if matrix not in MATRICES:
        raise NystraError(
            f"the video {path} has the color matrix {matrix} (ITU-T H.273), which is not converted "
            "to RGB: convert the video to BT.709 first"
        )
    full = int(frame.color_range) == _FULL or name.startswith("yuvj")
    return Color(
        name,
        min(max(component.bits for component in components), 16),
        any(component.is_alpha for component in components),
        matrix,
        full and not is_rgb,
        int(context.color_primaries),
        int(context.color_trc),
    )


def _besides(container: Any, stream: Any, color: Color, times: list[int]) -> Iterator[str]:
    for other in container.streams:
        if other.index != stream.index:
            yield describe(other)
    if container.chapters():
        yield "chapters"
    if max(color.primaries, color.transfer) > _UNSPECIFIED:  # below it is BT.709
        yield "color tags"
    if len(times) > 1 and np.ptp(np.diff(times)) > 2:
        yield "the times of the frames"


def _warnings(frame: Any, stream: Any, color: Color) -> Iterator[str]:
    if frame.interlaced_frame:
        yield (
            "the video is marked as interlaced: deinterlace it first, or its lines will be mixed up"
        )
    if color.transfer in _HDR:
        yield (
            f"the video is HDR ({_HDR[color.transfer]}), and most networks were not trained on HDR"
        )
    if stream.metadata.get("alpha_mode") == "1" and not color.alpha:
        yield f"not kept: the alpha of {stream.codec_context.name}, which PyAV does not decode"
    names = {data.type.name for data in frame.side_data}
    for begin, words in _LOST.items():
        if any(name.startswith(begin) for name in names):
            yield f"not kept: the {words} of its frames"
