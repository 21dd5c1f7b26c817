"""The frames of a video file, by PyAV."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import NystraError
from ...core.files.reading import open_regular
from ..images.image_data import ImageData
from .clip import Clip, Color, Frame
from .containers import HEAD, av_errors, demuxer_of, load_av
from .rgb import MATRICES, Converter, to_image

MAX_PIXELS = 1 << 26
"""Largest frame that is decoded, in pixels: 8192x8192."""

_MAX_STREAMS = 64
_MAX_FRAMES = 10_000_000
UNSPECIFIED, FULL = 2, 2
"""The numbers of unspecified colors, and of the full range."""
_HDR = {16: "PQ", 18: "HLG"}
_SHORT = 0.25
"""Seconds by which the streams may end before the duration in the file."""
_REPAIR = "Repair or convert it with another program first"
_LOST = {
    **dict.fromkeys(("DOVI_METADATA", "DOVI_RPU_BUFFER"), "Dolby Vision metadata"),
    **dict.fromkeys(("DYNAMIC_HDR_PLUS", "DYNAMIC_HDR_VIVID"), "dynamic HDR metadata"),
    **dict.fromkeys(("MASTERING_DISPLAY_METADATA", "CONTENT_LIGHT_LEVEL"), "HDR mastering display"),
    "A53_CC": "closed captions",
    "STEREO3D": "3D metadata",
    "S12M_TIMECODE": "time codes",
    "SPHERICAL": "360-degree metadata",
    "ICC_PROFILE": "color profile",
}
"""What else frames may hold, which the encoders do not get: FFmpeg's name and the words."""


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
            first = next(self._decoded(container, stream), None)
            if first is None:
                raise NystraError(f"the video {path} has no frame that can be decoded. {_REPAIR}")
            self._first = (first.width, first.height, first.format.name)
            self._quarter_turns = round(float(first.rotation or 0) / 90) % 4
            color = _color(first, stream, path)
            aspect = stream.codec_context.sample_aspect_ratio or Fraction(1)
            size = (first.height, first.width)
            if self._quarter_turns % 2:
                size, aspect = size[::-1], 1 / aspect
            rate, steps = _mean_rate(self._times, stream), np.diff(self._times)
            even = not len(steps) or bool(steps.max() - steps.min() <= 2)
            warnings = tuple(_warnings(first, stream, color))
            count = len(self._times)
            self.clip = Clip(count, size, color, stream.time_base, rate, even, aspect, warnings)

    def frames(self) -> Iterator[Frame]:
        """Yield all frames in display order.

        Raises:
            NystraError: One is damaged or of another size, or the last ones are missing.
        """
        count = 0
        with open_video(self.path) as (container, stream):
            for frame in self._decoded(container, stream):
                self._check_first(frame, count)
                # avi has times of decoding alone.
                known = container.format.name != "avi" and frame.pts is not None
                time = frame.pts if known else self._times[min(count, len(self._times) - 1)]
                yield Frame(count, int(time), partial(self._image, frame))
                count += 1
        if count < self.clip.count:
            raise NystraError(
                f"{self.clip.count - count} of the {self.clip.count} frames of {self.path} cannot "
                f"be decoded: {_REPAIR}"
            )

    def name(self, index: int) -> Path:
        """Return a file name for a frame, counted from 1."""
        return Path(f"frame_{index + 1:06d}.png")

    def _decoded(self, container: Any, stream: Any) -> Iterator[Any]:
        frames = container.decode(stream)
        for index in range(_MAX_FRAMES):
            what = f"frame {index + 1} of the video {self.path} is damaged"
            with av_errors(what, _REPAIR):
                frame = next(frames, None)
            if frame is None:
                return
            if frame.is_corrupt:
                raise NystraError(f"{what}. {_REPAIR}")
            yield frame

    def _check_first(self, frame: Any, index: int) -> None:
        own = (frame.width, frame.height, frame.format.name)
        if own != self._first:
            ours, first = ("{}x{}, {}".format(*each) for each in (own, self._first))
            raise NystraError(
                f"frame {index + 1} of {self.path} is {ours}, the first one {first}: expected "
                "frames of one size and format; cut the video there first"
            )

    def _image(self, frame: Any) -> ImageData:
        color, given = self.clip.color, frame.format.name
        target = "rgba64le" if color.alpha else "rgb48le"
        is_rgb = frame.format.is_rgb
        if is_rgb:
            rgb = frame.reformat(format=target)
        else:
            size = (frame.height, frame.width)
            rgb = Converter(size, given, target, color, frame.time_base)(frame)
        return to_image(rgb, color, self._quarter_turns, converted=not is_rgb)


@contextmanager
def open_video(path: Path) -> Iterator[tuple[Any, Any]]:
    """Yield a file as PyAV's container, and its first video stream that is not a still image.

    Only the file itself is read: the container is detected from its first bytes, so that no
    playlist can refer to other files, and frames that are too large are refused before they are
    decoded.

    Raises:
        NystraError: It is missing, not a video, or too large.
        BackendUnavailableError: PyAV is missing.
    """
    av = load_av()
    bounds = {"max_pixels": str(MAX_PIXELS), "max_streams": str(_MAX_STREAMS)}
    with open_regular(path, "the video") as file:
        kind = demuxer_of(file.read(HEAD), path)
        file.seek(0)
        with av_errors(f"the video {path} cannot be read: damaged or truncated", _REPAIR):
            container = av.open(file, format=kind, options=bounds, metadata_errors="replace")
        with container:
            moving = [stream for stream in container.streams.video if not is_still(stream)]
            if not moving:
                kinds = ", ".join(sorted({stream.type for stream in container.streams}))
                raise NystraError(f"{path} holds no video stream, only {kinds or 'nothing'}")
            stream = moving[0]
            context = stream.codec_context
            if context.width * context.height > MAX_PIXELS:
                raise NystraError(
                    f"the video {path} is {context.width}x{context.height}, expected at most "
                    f"{MAX_PIXELS >> 20} million pixels"
                )
            context.options = {"err_detect": "explode", "max_pixels": bounds["max_pixels"]}
            stream.thread_type = "AUTO"
            yield container, stream


def is_still(stream: Any) -> bool:
    """Return whether a stream is a picture, such as a cover."""
    return bool(stream.disposition & load_av().stream.Disposition.attached_pic)


def default_matrix(height: int) -> int:
    """Return the matrix of a video without a tag: BT.709 from 720 lines on, otherwise BT.601."""
    return 1 if height >= 720 else 6


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


def _mean_rate(times: list[int], stream: Any) -> Fraction:
    rate = stream.average_rate
    if len(times) > 1 and not (rate and 0 < rate <= 1000):
        rate = Fraction(len(times) - 1, times[-1] - times[0]) / stream.time_base
    return Fraction(rate or 25).limit_denominator(100_000)


def _color(frame: Any, stream: Any, path: Path) -> Color:
    context, components = stream.codec_context, frame.format.components
    bits = max(component.bits for component in components)
    matrix, full = int(frame.colorspace), int(frame.color_range) == FULL
    if frame.format.is_rgb or matrix in (UNSPECIFIED, 0):
        matrix = default_matrix(frame.height)
    if matrix not in MATRICES:
        raise NystraError(
            f"the video {path} has the color matrix {matrix} (ITU-T H.273), which is not converted "
            "to RGB: convert the video to BT.709 first"
        )
    return Color(
        frame.format.name,
        min(bits, 16),
        any(component.is_alpha for component in components),
        matrix,
        (full or frame.format.name.startswith("yuvj")) and not frame.format.is_rgb,
        int(context.color_primaries),
        int(context.color_trc),
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
    if stream.metadata.get("alpha_mode") == "1" and not color.alpha:
        yield f"not kept: the alpha of {stream.codec_context.name}, which PyAV does not decode"
    names = {data.type.name for data in frame.side_data}
    for words in sorted({_LOST[name] for name in names if name in _LOST}):
        yield f"not kept: the {words} of its frames"
