"""PyAV, the containers and codecs of videos.

A demuxer of FFmpeg is listed only if it reads nothing but the file itself: no playlist and no list
of files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from ...core.errors import BackendUnavailableError, NystraError
from ...core.installation import not_installed

HEAD = 197
"""Bytes that `demuxer_of` looks at."""

WRITTEN = {".mp4": "mp4", ".m4v": "mp4", ".mov": "mov", ".mkv": "matroska"}
"""Suffix of a video that is written -> FFmpeg's name of its muxer."""

READ_SUFFIXES = (
    *(*WRITTEN, ".webm", ".3gp", ".avi", ".wmv", ".asf", ".flv", ".f4v", ".ts", ".m2ts", ".mts"),
    *(".mpg", ".mpeg", ".vob", ".y4m"),
)
"""Suffixes of the videos that are read."""

_OTHER_SUFFIXES = (".ogv", ".ogm", ".rm", ".rmvb", ".mxf", ".dv", ".divx", ".nut", ".ivf", ".h264")

_DEMUXERS: tuple[tuple[str, Callable[[bytes], bool]], ...] = (
    ("matroska", lambda head: head.startswith(b"\x1aE\xdf\xa3")),
    ("mov", lambda head: head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")),
    ("avi", lambda head: head[:4] == b"RIFF" and head[8:12] == b"AVI "),
    ("flv", lambda head: head.startswith(b"FLV\x01")),
    ("asf", lambda head: head.startswith(b"\x30\x26\xb2\x75\x8e\x66\xcf\x11")),
    ("mpeg", lambda head: head.startswith(b"\x00\x00\x01\xba")),
    ("yuv4mpegpipe", lambda head: head.startswith(b"YUV4MPEG2 ")),
    ("mpegts", lambda head: head[:1] == b"G" == head[188:189]),
    ("mpegts", lambda head: head[4:5] == b"G" == head[196:197]),
)


def demuxer_of(head: bytes, path: Path) -> str:
    """Return FFmpeg's name of the demuxer of a file.

    Args:
        head: Its first `HEAD` bytes.
        path: For the message.

    Raises:
        NystraError: It is in none of the formats.
    """
    for name, fits in _DEMUXERS:
        if fits(head):
            return name
    raise NystraError(
        f"{path} is not a video in a supported format (mp4, mov, mkv, webm, avi, wmv, flv, ts, "
        "mpg, y4m). Another container is rewritten without loss by: ffmpeg -i IN -c copy OUT.mkv"
    )


def is_read(path: str | os.PathLike[str]) -> bool:
    """Return whether a path has the suffix of a video, also of one that is only refused."""
    return Path(path).suffix.lower() in (*READ_SUFFIXES, *_OTHER_SUFFIXES)


def is_written(path: str | os.PathLike[str]) -> bool:
    """Return whether a path has the suffix of a video that is written."""
    return Path(path).suffix.lower() in WRITTEN


CODECS = {"h264": "libx264", "hevc": "libx265", "prores": "prores_ks", "ffv1": "ffv1"}
"""Name of a codec -> its encoder."""

RATED = ("h264", "hevc")
"""Codecs with a constant rate factor; the others have one quality, ffv1 without loss."""

WITH_ALPHA = {".mov": "prores", ".mkv": "ffv1"}
"""Suffix of a video -> the codec that keeps its alpha."""


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
    if int(av.__version__.partition(".")[0]) < 16:
        raise BackendUnavailableError(
            f"video files need PyAV 16 or newer, found {av.__version__}: pip install -U av"
        )
    return av


@contextmanager
def av_errors(what: str, advice: str) -> Iterator[None]:
    """Turn PyAV's errors in the block into a `NystraError`: what went wrong, and what to do."""
    av = load_av()
    try:
        yield
    except (av.error.FFmpegError, ValueError) as error:  # ValueError: what PyAV finds by itself
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())[:200]
        raise NystraError(f"{what}: {reason}. {advice}") from error
