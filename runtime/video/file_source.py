"""The frames of a video file, by PyAV."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from ...core.errors import NystraError
from ..images.image_data import ImageData
from .containers import REPAIR, av_errors, open_video
from .rgb import FULL, LIMITED, MATRICES, RGB, Color, Converter, to_image, white_of

_MAX_FRAMES = 10_000_000
_UNSPECIFIED = 2
_HDR = {16: "PQ", 18: "HLG"}
_SHORT = 0.25
"""Seconds by which the streams may end before the duration in the file."""
_OF_THE_ENCODING = ("SEI_UNREGISTERED", "DISPLAYMATRIX", "GOP_TIMECODE", "PANSCAN", "AFD")
"""What frames hold besides their pixels that describes their encoding, or is applied."""


class VideoFile:
    """A file in a container of `containers`, detected from its content.

    Attributes:
        path: The file.
        count: Frames in all.
        size: Height and width in pixels.
        times: When each frame is shown, in ticks.
        time_base: Seconds per tick.
        rate: Mean frames per second.
        aspect: Width over height of a pixel.
        rotation: Degrees by which players turn it to the left.
        color: How its pixels are stored.
        warnings: Warnings about it.
    """

    def __init__(self, path: Path) -> None:
        """Read the times of all frames, and decode the first one.

        Raises:
            NystraError: It is missing, not a video, damaged, truncated or too large.
            BackendUnavailableError: PyAV is missing.
        """
        self.path = path
        with open_video(path) as (container, stream):
            self.times = _read_times(container, stream, path)
        self.count = len(self.times)
        with open_video(path) as (container, stream):
            first = next(self._decode(container, stream), None)
            if first is None:
                raise NystraError(f"the video {path} has no frame that can be decoded. {REPAIR}")
            self.time_base: Fraction = stream.time_base
            self.rate = Fraction(stream.average_rate or stream.guessed_rate or 25)
            self.aspect = stream.codec_context.sample_aspect_ratio or Fraction(1)
            self.size = (first.height, first.width)
            self.color = _color(first, stream, path)
            self.warnings = list(_warnings(first, stream, self.color))
            self.rotation = float(first.rotation or 0)
            self._first, self._to_rgb = _kind(first), _rgb_converter(first, self.color)
            self._white = white_of(self.color, first.format.is_rgb)

    def frames(self) -> Iterator[tuple[Path, ImageData]]:
        """Yield all frames in display order, each with a name like that of an image file.

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
                count += 1
                image = to_image(self._to_rgb(frame), self.color, self._white)
                yield Path(f"frame_{count:06d}.png"), image
        if count != self.count:
            raise NystraError(
                f"{count} of the {self.count} frames of {self.path} can be decoded. {REPAIR}"
            )

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


def _kind(frame: Any) -> str:
    return f"{frame.width}x{frame.height} {frame.format.name}"


def _rgb_converter(first: Any, color: Color) -> Any:
    """Return what converts frames like the first one to RGB of 16 bits."""
    if first.format.is_rgb:
        return lambda frame: frame.reformat(format=RGB)
    size = (first.height, first.width)
    return Converter(size, first.format.name, RGB, color, first.time_base)


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
    name, is_rgb = frame.format.name, frame.format.is_rgb
    matrix = int(frame.colorspace)
    if is_rgb or matrix in (_UNSPECIFIED, 0):
        matrix = 1 if frame.height >= 720 else 6  # BT.709 or BT.601, as players assume
    if matrix not in MATRICES:
        raise NystraError(
            f"the video {path} has the color matrix {matrix} (ITU-T H.273), which is not converted "
            "to RGB: convert the video to BT.709 first"
        )
    full = int(frame.color_range) == FULL or name.startswith("yuvj")
    return Color(
        name,
        min(max(component.bits for component in frame.format.components), 16),
        matrix,
        FULL if full and not is_rgb else LIMITED,
        int(stream.codec_context.color_primaries),
        int(stream.codec_context.color_trc),
    )


def _warnings(frame: Any, stream: Any, color: Color) -> Iterator[str]:
    if frame.interlaced_frame:
        yield (
            "the video is marked as interlaced: deinterlace it first, or its lines will be mixed up"
        )
    if color.transfer in _HDR:
        yield (
            f"the video is HDR ({_HDR[color.transfer]}), and most networks were not trained on HDR"
        )
    alpha = any(component.is_alpha for component in frame.format.components)
    if alpha or stream.metadata.get("alpha_mode") == "1":
        yield "not kept: the alpha, which the output does not hold; see docs/running.md"
    names = {data.type.name for data in frame.side_data}
    for name in sorted(names.difference(_OF_THE_ENCODING)):
        yield f"not kept: the {name.lower().replace('_', ' ')} of its frames"
