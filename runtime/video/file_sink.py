"""A video file that is written in parts and moved to its path when it is complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...core.arrays import Array
from ...core.errors import NystraError
from ...core.files.writing import atomic_path, check_can_make, make_folder
from ..images.image_data import ImageData
from .assembling import assemble, check_container
from .clip import Clip, Frame, FrameSource
from .color import Color
from .encoding import Encoding, Packet
from .file_source import VideoFile
from .library import av_errors, load_av
from .parts import Parts
from .pending import PendingFrames

PART = 60
"""Frames of a part, and so the most that are on the disk uncompressed."""

_CRF = 18


class VideoSink:
    """Encodes frames; see `Parts` for what is kept if a run ends early."""

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
            source: The source of frames and sound.
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
        self.encoding = make_encoding(source.clip, scale, codec, crf)
        self._sound = source.path if isinstance(source, VideoFile) else None
        check_container(target, self.encoding, self._sound)
        whole = {"video": source.identity(), "PyAV": load_av().__version__, **job}
        whole["encoding"] = repr(self.encoding)
        self.parts = Parts(target, whole, fresh=overwrite)
        self._fresh = overwrite
        self._pending = self._begun(fresh=overwrite)
        self._first = self.parts.done + self._pending.count
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
        planes = self.encoding.planes(image.pixels)
        self.parts.begin()
        with av_errors(f"frame {frame.index + 1} cannot be encoded", "Try the other `codec`"):
            self._go_on()
            if self._pending.count == PART:  # stopped in front of what follows
                self._close()
                self._go_on()
            self._encode(planes, frame.time)
        self._pending.add(frame.time, planes)
        if self._pending.count == PART:
            self._close()

    def finish(self) -> None:
        """Write the video of its parts and remove them.

        Raises:
            NystraError: The folder cannot be written, or the disk is full: the parts are kept.
        """
        if self._pending.count:
            with av_errors("the last frames cannot be encoded", "Try the other `codec`"):
                self._go_on()
            self._close()
        with atomic_path(self.target) as temporary:
            assemble(temporary, self.encoding, self.parts.packets, self._sound)
        self.parts.remove()

    def keep(self) -> str:
        """Return how to continue: all frames that were written are kept."""
        done = self.parts.done
        if self._pending.place == self.parts.pending:  # not stopped after they became a part
            done += self._pending.count
        if not done:
            self.parts.remove()
            return ""
        how = "the same command without `overwrite`" if self._fresh else "the same command"
        return (
            f"{done} finished frames are kept in {self.parts.folder}: {how} continues from there."
        )

    def _begun(self, *, fresh: bool = False) -> PendingFrames:
        """Return the frames after the last part."""
        gray = np.full((*self.encoding.size, 1), 0.5, np.float32)
        return PendingFrames(self.parts.pending, self.encoding.planes(gray), fresh=fresh)

    def _go_on(self) -> None:
        """Open the encoder of a part, and pass it the existing frames of that part."""
        if self._encoder is None:
            self._encoder = self.encoding.encoder()
            for time, planes in self._pending.read():
                self._encode(planes, time)

    def _encode(self, planes: list[Array], time: int) -> None:
        self._packets += Packet.all_of(self._encoder.encode(self.encoding.frame(planes, time)))

    def _close(self) -> None:
        """Save the frames since the last part as a part."""
        encoder, self._encoder = self._encoder, None
        with av_errors("the last frames cannot be encoded", "Try the other `codec`"):
            self._packets += Packet.all_of(encoder.encode(None))
        packets, self._packets = self._packets, []
        pending = self._pending
        self.parts.save(packets, bytes(encoder.extradata or b""))
        pending.remove()
        self._pending = self._begun()


def make_encoding(
    clip: Clip, scale: int, codec: str | None = None, crf: int | None = None
) -> Encoding:
    """Return the encoding of the enlarged frames of a clip.

    Raises:
        NystraError: The clip has no times.
    """
    if clip.time_base is None or clip.rate is None:
        raise NystraError("a folder of frames has no frame rate: give one, such as `fps` 25")
    height, width = (side * scale for side in clip.size)
    codec = codec or ("hevc" if clip.color.bits > 8 else "h264")
    return Encoding(
        codec,
        _CRF if crf is None else crf,
        (height, width),
        _writable(clip.color, height, width),
        clip.time_base,
        clip.rate,
        clip.aspect,
    )


def _writable(color: Color, height: int, width: int) -> Color:
    """Return the nearest color encoding that both codecs and most players support."""
    subsampling = "420" if color.subsampling == "gray" else color.subsampling
    if (subsampling == "420" and height % 2) or (subsampling != "444" and width % 2):
        subsampling = "444"
    return replace(color, subsampling=subsampling, bits=min(color.bits, 10))


def _check_target(target: Path, source: FrameSource, overwrite: bool) -> None:
    if target.is_dir():
        raise NystraError(f"{target} is a folder, expected the name of a video")
    if target.exists() and target.samefile(source.path):
        raise NystraError(f"the output {target} is the input itself: choose another output")
    if target.exists() and not overwrite:
        raise NystraError(f"{target} exists: choose another output or add `overwrite`")
    check_can_make(target.parent)
    make_folder(target.parent)
