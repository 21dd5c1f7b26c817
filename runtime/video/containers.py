"""PyAV, and the containers and codecs of videos."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ...core.errors import BackendUnavailableError, NystraError
from ...core.files.kinds import HEAD, FileKind, file_kind
from ...core.files.reading import open_regular
from ...core.installation import not_installed

MAX_PIXELS = 1 << 26
"""Largest frame that is decoded, in pixels: 8192x8192."""

_MAX_STREAMS = 64

WRITTEN = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mov", ".mkv": "matroska"}
"""Suffix of a video that is written -> FFmpeg's name of its muxer."""

READ_SUFFIXES = (
    *(*WRITTEN, ".webm", ".3gp", ".avi", ".wmv", ".asf", ".flv", ".f4v", ".ts", ".m2ts", ".mts"),
    *(".mpg", ".mpeg", ".vob", ".y4m", ".ogv", ".ogm", ".rm", ".rmvb", ".mxf", ".dv", ".divx"),
    *(".nut", ".ivf", ".h264"),
)
"""Suffixes of videos, also of those that are only refused."""

_DEMUXERS = "matroska,webm,mov,mp4,avi,flv,asf,mpeg,yuv4mpegpipe,mpegts"
"""FFmpeg's names of the demuxers that are used: they read nothing but the file itself, no playlist
and no list of files."""

_FORMATS = "mp4, mov, mkv, webm, avi, wmv, flv, ts, mpg, y4m"

REPAIR = "Repair or convert it with another program first"

CODECS = {"h264": "libx264", "hevc": "libx265"}
"""Name of a codec -> its encoder."""


def is_read(path: str | os.PathLike[str]) -> bool:
    """Return whether a path has the suffix of a video, also of one that is only refused."""
    return Path(path).suffix.lower() in READ_SUFFIXES


def is_written(path: str | os.PathLike[str]) -> bool:
    """Return whether a path has the suffix of a video that is written."""
    return Path(path).suffix.lower() in WRITTEN


def load_av() -> ModuleType:
    """Return the module ``av``.

    Raises:
        BackendUnavailableError: It is not installed, or too old.
    """
    try:
        import av
    except ImportError as error:
        raise BackendUnavailableError(
            f"{not_installed('PyAV, which video files need,', 'video')}, or give a folder of frames"
        ) from error
    if tuple(map(int, av.__version__.split(".")[:2])) < (17, 1):
        raise BackendUnavailableError(
            f"video files need PyAV 17.1 or newer, found {av.__version__}: pip install -U av"
        )
    return av


@contextmanager
def av_errors(what: str, advice: str) -> Iterator[None]:
    """Turn PyAV's errors in the block into a `NystraError`: what went wrong, and what to do."""
    av = load_av()
    try:
        yield
    except (av.error.FFmpegError, OSError, ValueError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())[:200]
        raise NystraError(f"{what}: {reason}. {advice}") from error


@contextmanager
def open_video(path: Path) -> Iterator[tuple[Any, Any]]:
    """Yield a file as PyAV's container, and its first video stream that is not a still image.

    Frames that are too large are refused before they are decoded.

    Raises:
        NystraError: It is missing, not a video, or too large.
        BackendUnavailableError: PyAV is missing.
    """
    av = load_av()
    bounds = {"max_pixels": str(MAX_PIXELS), "max_streams": str(_MAX_STREAMS)}
    what = f"{path} is damaged, truncated or not a video in a supported format ({_FORMATS})"
    advice = f"{REPAIR}, such as by ffmpeg -i IN -c copy OUT.mkv"
    with open_regular(path, "the video") as file:
        kind = file_kind(file.read(HEAD))
        if kind not in (None, FileKind.VIDEO):
            raise NystraError(f"{path} is not a video: it is {kind}, expected {_FORMATS}")
        file.seek(0)
        with av_errors(what, advice):
            options = {"format_whitelist": _DEMUXERS, **bounds}
            container = av.open(file, options=options, metadata_errors="replace")
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


def describe(stream: Any) -> str:
    """Return a stream in words: ``subtitle stream 1 (srt, ger)``."""
    if is_still(stream):
        return "cover"
    if stream.type == "attachment":
        return f"attachment {stream.name}"
    codec = getattr(stream.codec_context, "name", None)
    language = stream.metadata.get("language")
    about = ", ".join(text for text in (codec, language) if text and text != "und")
    return f"{stream.type} stream {stream.index}" + (f" ({about})" if about else "")
