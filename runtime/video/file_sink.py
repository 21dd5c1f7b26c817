"""A video file that is encoded by PyAV, and then put in its place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...core.files.writing import atomic_path, check_can_make, check_new_file, make_folder
from ..images.image_data import ImageData
from .containers import CODECS, WRITTEN, av_errors, load_av, open_video
from .file_source import VideoFile
from .other_streams import OtherStreams
from .rgb import RGB, Color, Converter, to_values

_CRF = 18
_ADVICE = "Choose .mkv, which supports every audio codec, or the other `codec`"
_TAGS = {"h264": "avc1", "hevc": "hvc1"}


class VideoSink:
    """Encodes frames into a temporary file, which is moved into place when all are written.

    Attributes:
        warnings: What of the source the video does not hold.
    """

    def __init__(
        self,
        target: Path,
        source: VideoFile,
        scale: int,
        *,
        codec: str | None = None,
        crf: int | None = None,
        overwrite: bool = False,
    ) -> None:
        """Check what is asked for; nothing is written yet.

        Without a codec of `CODECS` the bit depth of the source decides.

        Raises:
            NystraError: The file exists, or its folder cannot be written.
        """
        check_new_file(target, "a video", source.path, overwrite=overwrite)
        check_can_make(target.parent)
        bits = source.color.bits
        self._target, self._source = target, source
        self._size = (source.size[0] * scale, source.size[1] * scale)
        self._codec = codec or ("hevc" if bits > 8 else "h264")
        self._options = {"crf": str(_CRF if crf is None else crf), "preset": "medium"}
        if self._codec == "hevc":
            self._options["x265-params"] = "log-level=none"
        self._color = _choose_format(source, self._size)
        self.warnings: list[str] = []
        if bits > self._color.bits:
            lost = f"{bits} bits a channel, which became {self._color.bits}"
            self.warnings.append(f"not kept: {lost}")

    @contextmanager
    def open(self) -> Iterator[None]:
        """Open the file with its streams, and complete it at the end of the block.

        Raises:
            NystraError: The container does not support the sound, PyAV lacks the codec, or the disk
                is full.
        """
        make_folder(self._target.parent)
        with (
            atomic_path(self._target) as place,
            open_video(self._source.path) as (container, video),
            ExitStack() as stack,
        ):
            self._open(place, container, video, stack)
            yield
            with av_errors(f"{self._target.name} cannot be written", _ADVICE):
                self._output.mux(self._stream.encode(None))
                self._others.copy_until(None)
                self._output.close()
            with load_av().open(str(place), metadata_errors="replace") as copy:
                self.warnings += self._others.find_lost(copy)

    def write(self, index: int, image: ImageData) -> None:
        """Encode the next frame.

        Raises:
            NystraError: The encoder fails, or the disk is full.
        """
        source, color = self._source, self._color
        rgb = load_av().VideoFrame.from_ndarray(to_values(image), format=RGB)
        rgb.pts, rgb.time_base = source.times[index], source.time_base
        with av_errors(f"frame {index + 1} cannot be written", _ADVICE):
            self._others.copy_until(rgb.pts * rgb.time_base)
            stored = self._convert(rgb)
            stored.colorspace, stored.color_range = color.matrix, color.range
            self._output.mux(self._stream.encode(stored))

    def _open(self, place: Path, container: Any, video: Any, stack: ExitStack) -> None:
        kind = WRITTEN[self._target.suffix.lower()]
        sound = ", ".join(track.codec_context.name for track in container.streams.audio)
        # The edit list of mp4 counts in this unit: milliseconds would move the first frame.
        ticks = {"movie_timescale": str(self._source.time_base.denominator)}
        options = {} if kind == "matroska" else ticks
        what = f"{self._target.name} cannot be written with {self._codec} and its sound ({sound})"
        with av_errors(what, _ADVICE):
            self._output = load_av().open(str(place), "w", format=kind, options=options)
            stack.callback(self._output.close)
            self._stream = self._add_stream(kind)
            self._convert = Converter(
                self._size, RGB, self._color.pixel_format, self._color, self._source.time_base
            )
            self._others = OtherStreams(container, video, self._output, self._stream)
            self._output.start_encoding()

    def _add_stream(self, kind: str) -> Any:
        source, color = self._source, self._color
        codec, options = CODECS[self._codec], self._options
        stream = self._output.add_stream(codec, rate=source.rate, options=options)
        context = stream.codec_context
        stream.height, stream.width = self._size
        stream.pix_fmt, stream.time_base = color.pixel_format, source.time_base
        context.time_base, context.sample_aspect_ratio = source.time_base, source.aspect
        context.colorspace, context.color_range = color.matrix, color.range
        context.color_primaries, context.color_trc = color.primaries, color.transfer
        if source.rotation:
            stream.set_display_rotation(source.rotation)
        if kind != "matroska":
            context.codec_tag = _TAGS[self._codec]
        return stream


def _choose_format(source: VideoFile, size: tuple[int, int]) -> Color:
    """Return how a video of this size is stored: as nearly as its source as the encoders can."""
    planes = load_av().VideoFormat(source.color.pixel_format, 4, 4)
    across, down = planes.chroma_width(4), planes.chroma_height(4)
    chroma = "444" if across == 4 else "422"
    if planes.name.startswith("gray") or (across, down) == (2, 2):
        chroma = "420"
    if (chroma == "420" and size[0] % 2) or (chroma != "444" and size[1] % 2):
        chroma = "444"
    bits = 8 if source.color.bits == 8 else 10
    name = f"yuv{chroma}p" + ("" if bits == 8 else "10le")
    return replace(source.color, pixel_format=name, bits=bits)
