"""A video file that is encoded by PyAV, and then put in its place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...core.errors import BackendUnavailableError, NystraError
from ...core.files.writing import atomic_path, check_can_make, make_folder
from ..images.image_data import ImageData
from ..images.metadata import names_of
from .clip import Clip, Color, Frame, FrameSource
from .containers import CODECS, RATED, WITH_ALPHA, WRITTEN, av_errors, load_av, open_video
from .file_source import VideoFile
from .other_streams import OtherStreams
from .rgb import Converter, to_values

_CRF = 18
_ADVICE = "Choose .mkv, which supports every audio codec, or the other `codec`"
_OPTIONS = {"hevc": {"x265-params": "log-level=none"}, "ffv1": {"level": "3", "slicecrc": "1"}}
_TAGS = {"h264": "avc1", "hevc": "hvc1"}
_LIMITED, _FULL = 1, 2
"""FFmpeg's numbers of the ranges."""


class VideoSink:
    """Encodes frames into a temporary file, which is moved into place when all are written.

    Attributes:
        warnings: What of the source the video does not hold.
        advice: How a run continues after an error: it starts again.
    """

    advice = ""

    def __init__(
        self,
        target: Path,
        source: FrameSource,
        scale: int,
        *,
        codec: str | None = None,
        crf: int | None = None,
        overwrite: bool = False,
    ) -> None:
        """Check what is asked for; nothing is written yet.

        Args:
            target: An mp4, mov or mkv.
            source: The source of frames, sound and all else.
            scale: Output pixels per input pixel and axis.
            codec: Name in `CODECS`; None: by the bit depth of the source.
            crf: Its constant rate factor; None: a default.
            overwrite: Replace an existing file.

        Raises:
            NystraError: The file exists, its folder cannot be written, the clip has no times, or
                the codec no rate factor.
            BackendUnavailableError: PyAV is missing.
        """
        load_av()
        _check_target(target, source, overwrite)
        clip = source.clip
        if clip.time_base is None:
            raise NystraError("a folder of frames has no frame rate: give one, such as `fps` 25")
        self._target, self._source, self._clip = target, source, clip
        self._time_base = clip.time_base
        self._size = (clip.size[0] * scale, clip.size[1] * scale)
        self._codec = _choose_codec(clip, codec, crf, target.suffix.lower())
        self._options = {**_OPTIONS.get(self._codec, {})}
        if self._codec in RATED:
            self._options |= {"crf": str(_CRF if crf is None else crf), "preset": "medium"}
        self._format, self._bits, self._alpha = _choose_format(clip, self._size, self._codec)
        self._rgb_format = "rgba64le" if self._alpha else "rgb48le"
        self._others: OtherStreams | None = None
        self.warnings = self._find_lost()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the file with its streams, and complete it at the end of the block.

        Raises:
            NystraError: The container does not support the sound, or the disk is full.
            BackendUnavailableError: This PyAV has no encoder for the codec.
        """
        make_folder(self._target.parent)
        with atomic_path(self._target) as place, ExitStack() as stack:
            self._open(place, stack)
            yield
            with av_errors(f"{self._target.name} cannot be written", _ADVICE):
                self._container.mux(self._stream.encode(None))
                if self._others is not None:
                    self._others.copy_until(None)
                self._container.close()
            if self._others is not None:
                with load_av().open(str(place), metadata_errors="replace") as copy:
                    self.warnings += self._others.find_lost(copy)

    def wants(self, index: int) -> bool:
        """Whether a frame is missing: each is."""
        return True

    def write(self, frame: Frame, image: ImageData) -> None:
        """Encode a frame; the next in order.

        Raises:
            NystraError: The encoder fails, or the disk is full.
        """
        lost = [f"not kept: {', '.join(names)} of its frames"] if (names := names_of(image)) else []
        if image.alpha is not None and not self._clip.color.alpha:
            lost.append(f"not kept: the alpha of frame {frame.index + 1}, since the first has none")
        self.warnings = list(dict.fromkeys([*self.warnings, *image.notes, *lost]))
        values = to_values(image, self._alpha)
        rgb = load_av().VideoFrame.from_ndarray(values, format=self._rgb_format)
        rgb.pts, rgb.time_base = frame.time, self._time_base
        with av_errors(f"frame {frame.index + 1} cannot be written", _ADVICE):
            if self._others is not None:
                self._others.copy_until(frame.time * self._time_base)
            stored, color = self._convert(rgb), self._clip.color
            stored.colorspace, stored.color_range = color.matrix, _range(color)
            self._container.mux(self._stream.encode(stored))

    def _open(self, place: Path, stack: ExitStack) -> None:
        kind, sound, video = WRITTEN[self._target.suffix.lower()], "", None
        if isinstance(self._source, VideoFile):
            source, video = stack.enter_context(open_video(self._source.path))
            sound = ", ".join(track.codec_context.name for track in source.streams.audio)
        # The edit list of mp4 counts in this unit: milliseconds would move the first frame.
        ticks = {"movie_timescale": str(self._time_base.denominator)}
        options = {} if kind == "matroska" else ticks
        what = f"{self._target.name} cannot be written with {self._codec} and its sound ({sound or 'none'})"
        with av_errors(what, _ADVICE):
            self._container = load_av().open(str(place), "w", format=kind, options=options)
            stack.callback(self._container.close)
            self._stream = self._add_stream(kind)
            stored = replace(self._clip.color, bits=self._bits)
            self._convert = Converter(
                self._size, self._rgb_format, self._format, stored, self._time_base
            )
            if video is not None:
                self._others = OtherStreams(source, video, self._container, self._stream)
            self._container.start_encoding()

    def _add_stream(self, kind: str) -> Any:
        try:
            stream = self._container.add_stream(
                CODECS[self._codec], rate=self._clip.rate, options=self._options
            )
        except load_av().codec.codec.UnknownCodecError as error:
            raise BackendUnavailableError(
                f"this PyAV cannot write {self._codec} ({CODECS[self._codec]}): pip install "
                "--force-reinstall av, or use the other `codec`, or a folder as the output"
            ) from error
        context, color = stream.codec_context, self._clip.color
        stream.height, stream.width = self._size
        stream.pix_fmt, stream.time_base = self._format, self._time_base
        context.time_base, context.sample_aspect_ratio = self._time_base, self._clip.aspect
        context.colorspace, context.color_range = color.matrix, _range(color)
        context.color_primaries, context.color_trc = color.primaries, color.transfer
        if kind != "matroska" and self._codec in _TAGS:
            context.codec_tag = _TAGS[self._codec]
        return stream

    def _find_lost(self) -> list[str]:
        lost = []
        if self._clip.color.alpha and not self._alpha:
            lost.append(
                f"not kept: the alpha, which {self._codec} in {self._target.suffix} does not hold: "
                "choose .mov (ProRes 4444) or .mkv (FFV1) without `codec`, or a folder of PNG"
            )
        if self._clip.color.bits > self._bits:
            lost.append(
                f"not kept: {self._clip.color.bits} bits a channel, which became {self._bits}"
            )
        return lost


def _range(color: Color) -> int:
    return _FULL if color.full else _LIMITED


def _choose_codec(clip: Clip, codec: str | None, crf: int | None, suffix: str) -> str:
    if codec is None and clip.color.alpha:
        codec = WITH_ALPHA.get(suffix)
    codec = codec or ("hevc" if clip.color.bits > 8 else "h264")
    if crf is not None and codec not in RATED:
        raise NystraError(f"`crf` does not apply to {codec}: omit it, or give `codec` h264 or hevc")
    return codec


def _choose_format(clip: Clip, size: tuple[int, int], codec: str) -> tuple[str, int, bool]:
    """Return the pixel format nearest to that of a clip, its bits, and whether it has alpha."""
    source = load_av().VideoFormat(clip.color.pixel_format, 4, 4)
    across, down = source.chroma_width(4), source.chroma_height(4)
    chroma = "444" if across == 4 else "420" if down == 2 else "422"
    if source.name.startswith("gray"):
        chroma = "420"
    alpha = clip.color.alpha and codec in WITH_ALPHA.values()
    bits = 8 if clip.color.bits == 8 else 10
    if codec == "prores":
        chroma, bits = "444" if alpha or chroma == "444" else "422", 10
    if (chroma == "420" and size[0] % 2) or (chroma != "444" and size[1] % 2):
        chroma = "444"
    name = f"yuv{'a' if alpha else ''}{chroma}p" + ("" if bits == 8 else "10le")
    return name, bits, alpha


def _check_target(target: Path, source: FrameSource, overwrite: bool) -> None:
    if target.is_dir():
        raise NystraError(f"{target} is a folder, expected the name of a video")
    if target.exists() and target.samefile(source.path):
        raise NystraError(f"the output {target} is the input itself: choose another output")
    if target.exists() and not overwrite:
        raise NystraError(f"{target} exists: choose another output or add `overwrite`")
    check_can_make(target.parent)
