"""A video file that is written in parts and moved to its path when it is complete."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...core.arrays import Array
from ...core.errors import NystraError
from ...core.files.writing import atomic_path, check_can_make, make_folder
from ..images.image_data import ImageData
from ..images.metadata import names_of
from .accompanying import lost_tags
from .clip import Clip, Frame, FrameSource
from .color import Color
from .containers import RATED, WITH_ALPHA
from .encoding import Encoding, Packet, assemble, with_decoding_times
from .file_source import VideoFile, open_video
from .library import av_errors, load_av
from .parts import Parts

PART = 60
"""Frames of a part, and so the most that are on the disk uncompressed."""

_LONGEST_DELAY = 64
"""Frames by which an encoder's decoding times may be earlier than the order of frames needs."""

_CRF = 18


class VideoSink:
    """Encodes frames; see `Parts` for what is kept if a run ends early.

    Attributes:
        warnings: What of the source the video does not hold.
    """

    def __init__(
        self,
        target: Path,
        source: FrameSource,
        scale: int,
        job: Mapping[str, str],
        *,
        codec: str | None = None,
        crf: int | None = None,
        overwrite: bool = False,
    ) -> None:
        """Check that the video can be written; nothing is written yet.

        Args:
            target: An mp4, mov or mkv.
            source: The source of frames, sound and all else.
            scale: Output pixels per input pixel and axis.
            job: What the frames depend on, apart from the source.
            codec: Name in `CODECS`; None: by the bit depth of the source.
            crf: Its constant rate factor; None: a default.
            overwrite: Replace an existing file, and parts of another run.

        Raises:
            NystraError: The file exists, its folder cannot be written, there are parts of another
                run, or the container does not support the sound.
            BackendUnavailableError: PyAV is missing, or its encoder.
        """
        _check_target(target, source, overwrite)
        self.target = target
        self.encoding = make_encoding(source.clip, scale, codec, crf, target.suffix.lower())
        self._source = source.path if isinstance(source, VideoFile) else None
        self.warnings = assemble(
            target, self.encoding, lambda _: iter(()), self._source, io.BytesIO()
        )
        self.warnings += _warnings(source.clip, self.encoding, target)
        everything = {"video": source.identity(), "PyAV": load_av().__version__, **job}
        everything["encoding"] = repr(self.encoding)
        self.parts = Parts(target, everything, fresh=overwrite)
        self._alpha = source.clip.color.alpha
        self._fresh = overwrite
        self._first = self.parts.done + self.parts.pending
        self._encoder: Any = None
        self._packets: list[Packet] = []

    def wants(self, index: int) -> bool:
        """Whether a frame is missing in the parts."""
        return index >= self._first

    def write(self, frame: Frame, image: ImageData) -> None:
        """Encode a frame; the next in order.

        Raises:
            NystraError: The encoder fails, or the disk is full.
        """
        if image.alpha is not None and not self._alpha:
            self._alpha = True
            self.warnings.append(
                f"not kept: the alpha of frame {frame.index + 1}, since the first has none"
            )
        self.warnings = list(dict.fromkeys([*self.warnings, *image.notes, *_lost(image)]))
        planes = self.encoding.planes(image.pixels, image.alpha)
        self.parts.begin()
        with av_errors(f"frame {frame.index + 1} cannot be encoded", "Try the other `codec`"):
            self._go_on()
            if self.parts.pending == PART:  # stopped in front of what follows
                self._close()
                self._go_on()
            self._encode(planes, frame.time)
        self.parts.add(frame.time, planes)
        if self.parts.pending == PART:
            self._close()

    def finish(self) -> None:
        """Write the video of its parts and remove them.

        Raises:
            NystraError: The folder cannot be written, or the disk is full: the parts are kept.
        """
        if self.parts.pending:
            with av_errors("the last frames cannot be encoded", "Try the other `codec`"):
                self._go_on()
            self._close()
        with atomic_path(self.target) as temporary:
            assemble(temporary, self.encoding, self.parts.packets, self._source)
        self.parts.remove()
        if self._source is not None:
            self.warnings += lost_tags(self._source, self.target, open_video)

    def keep(self) -> str:
        """Return how to continue: all frames that were written are kept."""
        done = self.parts.done + self.parts.pending
        if not done:
            self.parts.remove()
            return ""
        command = "the same command without `overwrite`" if self._fresh else "the same command"
        place = self.parts.folder
        return f"{done} finished frames are kept in {place}: {command} continues from there."

    def _go_on(self) -> None:
        if self._encoder is None:
            self._encoder = self.encoding.encoder()
            for time, planes in self.parts.frames():
                self._encode(planes, time)

    def _encode(self, planes: list[Array], time: int) -> None:
        self._packets += Packet.all_of(self._encoder.encode(self.encoding.frame(planes, time)))

    def _close(self) -> None:
        encoder, self._encoder = self._encoder, None
        with av_errors("the last frames cannot be encoded", "Try the other `codec`"):
            self._packets += Packet.all_of(encoder.encode(None))
        packets = with_decoding_times(self._packets, _LONGEST_DELAY * self.encoding.frame_ticks)
        self._packets = []
        self.parts.save(packets, bytes(encoder.extradata or b""))


def make_encoding(
    clip: Clip,
    scale: int,
    codec: str | None = None,
    crf: int | None = None,
    suffix: str = ".mp4",
) -> Encoding:
    """Return the encoding of the enlarged frames of a clip.

    Raises:
        NystraError: The clip has no times, or the codec no rate factor.
    """
    if clip.time_base is None or clip.rate is None:
        raise NystraError("a folder of frames has no frame rate: give one, such as `fps` 25")
    height, width = (side * scale for side in clip.size)
    if codec is None and clip.color.alpha:
        codec = WITH_ALPHA.get(suffix)
    codec = codec or ("hevc" if clip.color.bits > 8 else "h264")
    if crf is not None and codec not in RATED:
        raise NystraError(f"`crf` does not apply to {codec}: omit it, or give `codec` h264 or hevc")
    return Encoding(
        codec,
        _CRF if crf is None else crf,
        (height, width),
        _writable(clip.color, height, width, codec),
        clip.time_base,
        clip.rate,
        clip.aspect,
        clip.light,
    )


def _writable(color: Color, height: int, width: int, codec: str) -> Color:
    subsampling = "420" if color.subsampling == "gray" else color.subsampling
    bits, alpha = min(color.bits, 10), color.alpha and codec in WITH_ALPHA.values()
    if codec == "prores":
        subsampling, bits = "444" if alpha or subsampling == "444" else "422", 10
    if (subsampling == "420" and height % 2) or (subsampling != "444" and width % 2):
        subsampling = "444"
    return replace(color, subsampling=subsampling, bits=bits, alpha=alpha)


def _warnings(clip: Clip, encoding: Encoding, target: Path) -> list[str]:
    warnings = []
    if clip.color.alpha and not encoding.color.alpha:
        warnings.append(
            f"not kept: the alpha, which {encoding.codec} in {target.suffix} does not hold: choose "
            ".mov (ProRes 4444) or .mkv (FFV1) without `codec`, or a folder of PNG"
        )
    if (clip.light.mastering or any(clip.light.levels)) and encoding.codec not in RATED:
        warnings.append("not kept: the HDR mastering display and light levels: choose `codec` hevc")
    if clip.color.bits > encoding.color.bits:
        warnings.append(
            f"not kept: {clip.color.bits} bits a channel, which became {encoding.color.bits}"
        )
    return warnings


def _lost(image: ImageData) -> list[str]:
    names = names_of(image)
    return [f"not kept: {', '.join(names)} of its frames"] if names else []


def _check_target(target: Path, source: FrameSource, overwrite: bool) -> None:
    if target.is_dir():
        raise NystraError(f"{target} is a folder, expected the name of a video")
    if target.exists() and target.samefile(source.path):
        raise NystraError(f"the output {target} is the input itself: choose another output")
    if target.exists() and not overwrite:
        raise NystraError(f"{target} exists: choose another output or add `overwrite`")
    check_can_make(target.parent)
    make_folder(target.parent)
