"""The frames of a video file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...core.arrays import Array
from ...core.errors import BackendUnavailableError, NystraError
from ...core.files.reading import open_regular
from ..images.image_data import ImageData
from .accompanying import is_still
from .clip import Clip, Frame
from .color import OTHERS, SUBSAMPLINGS, UNSPECIFIED, Color, Light, default_matrix, to_rgb
from .containers import HEAD, demuxer_of
from .library import av_errors, load_av
from .survey import check_boxes, survey

MAX_PIXELS = 1 << 26
"""Largest frame that is decoded, in pixels: 8192x8192."""

_MAX_STREAMS = 64
_FULL = 2
_BITS = (8, 10, 12)
_HDR = {16: "PQ", 18: "HLG"}
_ALPHA_DECODERS = {"vp8": "libvpx", "vp9": "libvpx-vp9"}
_REPAIR = "Repair or convert it with another program first"


class VideoFile:
    """A file in a container of `containers`, detected from its content.

    Attributes:
        path: The file.
        clip: Its properties.
    """

    def __init__(self, path: Path) -> None:
        """Check the file; see `survey`.

        Raises:
            NystraError: It is missing, not a video, damaged, truncated or too large.
            BackendUnavailableError: PyAV is missing.
        """
        self.path = path
        with open_video(path) as (container, stream):
            times = survey(container, stream, path)
        with open_video(path) as (container, stream):
            first = next(self._decoded(container, stream), None)
            if first is None:
                raise NystraError(f"the video {path} has no frame that can be decoded. {_REPAIR}")
            self._size = (first.height, first.width)
            self._format = first.format.name
            self._quarter_turns = _quarter_turns(first)
            self._stamps = times.stamps
            color = _color(first, stream.codec_context, path)
            turned = self._quarter_turns % 2 == 1
            aspect = stream.codec_context.sample_aspect_ratio or Fraction(1)
            self.clip = Clip(
                len(times.stamps),
                self._size[::-1] if turned else self._size,
                color,
                stream.time_base,
                times.rate,
                times.even,
                1 / aspect if turned else aspect,
                Light.of(first),
                tuple(_warnings(first, color)),
            )

    def frames(self) -> Iterator[Frame]:
        """Yield all frames in display order.

        Raises:
            NystraError: One is damaged or of another size, or the last ones are missing.
        """
        index, last = 0, None
        with open_video(self.path) as (container, stream):
            counted = container.format.name == "avi"
            for frame in self._decoded(container, stream):
                if counted and index < len(self._stamps):  # avi has times of decoding alone
                    frame.pts = int(self._stamps[index])
                self._check(frame, index, last)
                yield Frame(index, frame.pts, partial(self._image, frame))
                index, last = index + 1, frame.pts
        if index < self.clip.count:
            raise NystraError(
                f"{self.clip.count - index} of the {self.clip.count} frames of {self.path} cannot "
                f"be decoded: {_REPAIR}"
            )

    def name(self, index: int) -> Path:
        """Return a file name for a frame, counted from 1."""
        return Path(f"frame_{index + 1:06d}.png")

    def identity(self) -> str:
        """Return name, size and date of the file."""
        status = self.path.stat()
        return f"{self.path.name} {status.st_size} {status.st_mtime_ns}"

    def _decoded(self, container: Any, stream: Any) -> Iterator[Any]:
        index = 0
        while True:
            what = f"frame {index + 1} of the video {self.path} is damaged"
            with av_errors(what, _REPAIR):
                if index == 0:
                    frames = _frames(container, stream)
                frame = next(frames, None)
            if frame is None:
                return
            if frame.is_corrupt:
                raise NystraError(
                    f"frame {index + 1} of the video {self.path} is damaged. {_REPAIR}"
                )
            index += 1
            yield frame

    def _check(self, frame: Any, index: int, last: int | None) -> None:
        size = (frame.height, frame.width)
        if size != self._size or frame.format.name != self._format:
            raise NystraError(
                f"frame {index + 1} of {self.path} is {size[1]}x{size[0]}, {frame.format.name}, "
                f"the first one {self._size[1]}x{self._size[0]}, {self._format}: expected frames "
                "of one size and format; cut the video there first"
            )
        if frame.pts is None or (last is not None and frame.pts <= last):
            raise NystraError(f"frame {index + 1} of {self.path} has no time stamp of its own")

    def _image(self, frame: Any) -> ImageData:
        bits = 8 if self.clip.color.bits == 8 else 16
        color = self.clip.color
        if frame.format.is_rgb:
            rgba = frame.to_ndarray(format="rgba64le" if color.alpha else "rgb48le")
            rgba = rgba.astype(np.float32) / np.float32(65535)
            pixels, alpha = rgba[:, :, :3], rgba[:, :, -1]
        else:
            planes = [plane_array(plane, color.bits) for plane in frame.planes]
            pixels = to_rgb(planes, color)
            alpha = planes[-1].astype(np.float32) / np.float32((1 << color.bits) - 1)
        return ImageData(
            self._upright(pixels),
            self._upright(alpha) if color.alpha else None,
            bits,
        )

    def _upright(self, plane: Array) -> Array:
        return np.ascontiguousarray(np.rot90(plane, self._quarter_turns))


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
        if kind == "mov":
            check_boxes(file, path)
        with av_errors(f"the video {path} cannot be read: damaged or truncated", _REPAIR):
            container = av.open(file, format=kind, options=bounds, metadata_errors="replace")
        with container:
            stream = _moving(container, path)
            context = stream.codec_context
            if context.width * context.height > MAX_PIXELS:
                raise NystraError(
                    f"the video {path} is {context.width}x{context.height}, expected at most "
                    f"{MAX_PIXELS >> 20} million pixels"
                )
            context.options = {"err_detect": "explode", "max_pixels": bounds["max_pixels"]}
            stream.thread_type = "AUTO"
            yield container, stream


def _frames(container: Any, stream: Any) -> Iterator[Any]:
    """Yield the frames of a video with their alpha, which FFmpeg's own VP8 and VP9 decoders drop.

    Raises:
        BackendUnavailableError: This PyAV has no decoder for the alpha.
    """
    codec = stream.codec_context.name
    if codec not in _ALPHA_DECODERS or stream.metadata.get("alpha_mode") != "1":
        yield from container.decode(stream)
        return
    try:
        context = load_av().CodecContext.create(_ALPHA_DECODERS[codec], "r")
    except ValueError as error:
        raise BackendUnavailableError(
            f"this PyAV cannot decode the alpha of {codec} ({_ALPHA_DECODERS[codec]}): pip install "
            "--force-reinstall av"
        ) from error
    for packet in container.demux(stream):
        yield from context.decode(packet)


def plane_array(plane: Any, bits: int) -> Array:
    """Return a plane of a frame as (h, w), in its memory, without the padding of its lines."""
    kind = np.dtype(np.uint8 if bits == 8 else "<u2")
    lines = np.frombuffer(plane, kind).reshape(-1, plane.line_size // kind.itemsize)
    return lines[: plane.height, : plane.width]


def _moving(container: Any, path: Path) -> Any:
    for stream in container.streams.video:
        if not is_still(stream):
            return stream
    raise NystraError(f"{path} holds no video stream, only {_kinds(container) or 'nothing'}")


def _kinds(container: Any) -> str:
    return ", ".join(sorted({stream.type for stream in container.streams}))


def _quarter_turns(frame: Any) -> int:
    """Return the number of quarter turns to the left that put a frame upright."""
    return round(float(frame.rotation or 0) / 90) % 4


def _color(frame: Any, context: Any, path: Path) -> Color:
    name = frame.format.name
    bits = frame.format.components[0].bits
    primaries, transfer = int(context.color_primaries), int(context.color_trc)
    alpha = any(component.is_alpha for component in frame.format.components)
    if frame.format.is_rgb and bits in (*_BITS, 16):
        matrix = default_matrix(frame.height)
        return Color(matrix, False, min(bits, 12), "444", primaries, transfer, alpha)
    base = name.removesuffix("le").rstrip("0123456789") if bits > 8 else name
    start = "yuva" if alpha else "yuvj" if name.startswith("yuvj") else "yuv"
    subsampling = base.removeprefix(start).removesuffix("p")
    if base in ("gray", "grayp"):
        subsampling = "gray"
    if (subsampling != "gray" and subsampling not in SUBSAMPLINGS) or bits not in _BITS:
        raise NystraError(
            f"the video {path} has the pixel format {name}, expected yuv420p, yuv422p, yuv444p, "
            "gray or RGB in 8, 10 or 12 bits, with or without alpha: convert it first"
        )
    matrix = int(frame.colorspace)
    if matrix in (UNSPECIFIED, 0):
        matrix = default_matrix(frame.height)
    full = int(frame.color_range) == _FULL or name.startswith("yuvj")
    return Color(matrix, full, bits, subsampling, primaries, transfer, alpha)


def _warnings(frame: Any, color: Color) -> Iterator[str]:
    if frame.interlaced_frame:
        yield (
            "the video is marked as interlaced: deinterlace it first, or its lines will be mixed up"
        )
    if color.transfer in _HDR:
        yield (
            f"the video is HDR ({_HDR[color.transfer]}), and most networks were not trained on HDR"
        )
    others = {OTHERS[data.type.name] for data in frame.side_data if data.type.name in OTHERS}
    for words in sorted(others):
        yield f"not kept: the {words} of its frames"
