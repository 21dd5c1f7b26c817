"""What a video file holds besides its frames: sound, subtitles, chapters, attachments and tags.

All of it is copied unchanged where the container of the output holds it; the rest is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

from .library import load_av

_OF_THE_FILE = {"encoder", "major_brand", "minor_version", "compatible_brands", "duration"}
_OF_THE_STREAM = _OF_THE_FILE | {
    *("rotate", "handler_name", "vendor_id", "filename", "mimetype", "alpha_mode", "bps"),
    *("number_of_frames", "number_of_bytes", "timecode"),
}
"""Tags that describe a file or an encoding, and not the video."""

_DEFAULT = 1
"""The disposition of a stream that players choose, which mp4 always sets."""

_KINDS = {"subtitle": "subtitles", "audio": "sound", "attachment": "attachment"}


class Accompanying:
    """The streams of an open video besides its frames, and their copies in another file.

    Attributes:
        lost: What was not copied, one sentence each.
    """

    def __init__(self, container: Any, video: Any) -> None:
        self.lost: list[str] = []
        self._container, self._video = container, video
        self._copies: dict[int, Any] = {}

    def add_to(self, output: Any, stream: Any, suffix: str) -> None:
        """Add streams, chapters and tags to a container before anything is written to it.

        Args:
            output: A container of PyAV that is open for writing.
            stream: Its video stream.
            suffix: The suffix of its file.

        Raises:
            ValueError: It does not hold the sound.
        """
        _describe(stream, self._video)
        for track in self._container.streams:
            if track.index != self._video.index:
                self._add(output, track, suffix)
        output.set_chapters(self._container.chapters())
        output.metadata.update(_tags(self._container.metadata, _OF_THE_FILE))

    def packets(self) -> Iterator[tuple[Fraction, Any]]:
        """Yield the packets of the copied streams with their times; their streams are the copies'.

        The packets of one stream are in order.
        """
        tracks = [track for track in self._container.streams if track.index in self._copies]
        for packet in self._container.demux(tracks) if tracks else ():
            if packet.dts is None and is_still(packet.stream):
                packet.pts = packet.dts = 0
            if packet.dts is not None and packet.size and not _is_gap(packet):
                time = packet.dts * packet.time_base
                packet.stream = self._copies[packet.stream.index]
                yield time, packet

    def _add(self, output: Any, track: Any, suffix: str) -> None:
        if track.type == "attachment":
            if output.format.name == "matroska":
                kind = track.mimetype or "application/octet-stream"
                output.add_attachment(track.name or "attachment", kind, bytes(track.data))
                return
        elif track.type in ("audio", "subtitle") or is_still(track):
            if is_still(track) and output.format.name == "matroska":
                self._add_picture(output, track)
                return
            try:
                copy = output.add_stream_from_template(track)
            except ValueError:
                if track.type == "audio":
                    raise
            else:
                _describe(copy, track)
                self._copies[track.index] = copy
                return
        elif track.type == "data" and self._container.chapters():
            return  # mp4 also holds the titles of chapters as such a stream
        self.lost.append(f"not kept: the {_name(track)}{_hint(suffix, track)}")

    def _add_picture(self, output: Any, track: Any) -> None:
        """Add a cover picture, which Matroska holds as an attachment."""
        picture = next(packet for packet in self._container.demux(track) if packet.size)
        self._container.seek(0)
        ending = {"mjpeg": "jpg"}.get(track.codec_context.name, track.codec_context.name)
        name = track.metadata.get("filename") or f"cover.{ending}"
        kind = {"jpg": "image/jpeg"}.get(ending, f"image/{ending}")
        output.add_attachment(name, kind, bytes(picture))


def besides_frames(source: Path, opened: Any) -> list[str]:
    """Return the names of what a video holds besides its frames.

    Args:
        source: The video.
        opened: Opens a video, as `open_video`.
    """
    with opened(source) as (container, video):
        chapters = container.chapters()
        parts = [_name(track) for track in container.streams if track.index != video.index]
        if chapters:  # mp4 also holds their titles as a stream
            parts = [name for name in parts if not name.startswith("data")]
            parts.append(f"{len(chapters)} chapters")
        parts += _tags(container.metadata, _OF_THE_FILE)
    return parts


def lost_tags(source: Path, target: Path, opened: Any) -> list[str]:
    """Return which chapters, covers and tags of a video its copy does not have, one sentence each.

    Args:
        source: The video.
        target: The copy.
        opened: Opens a video, as `open_video`.
    """
    with opened(source) as (before, video), opened(target) as (after, copy):
        marks: list[str] = []
        lost = _missing(before.metadata, after.metadata, _OF_THE_FILE)
        lost += _missing(video.metadata, copy.metadata, _OF_THE_STREAM)
        for kind in ("audio", "subtitles"):
            pairs = zip(getattr(before.streams, kind), getattr(after.streams, kind), strict=False)
            for track, other in pairs:
                lost += _missing(track.metadata, other.metadata, _OF_THE_STREAM)
                if other.disposition | _DEFAULT != track.disposition | _DEFAULT:
                    marks.append(_name(track))
        if "creation_time" in after.metadata:  # of the file, and not of each stream
            lost = [key for key in lost if key != "creation_time"]
        first, second = before.chapters(), after.chapters()
        pictures = [sum(map(is_still, file.streams.video)) for file in (before, after)]
    sentences = [f"not kept: the marks of the {name}, such as forced" for name in marks]
    if pictures[1] < pictures[0]:
        sentences.append(f"not kept: the cover{_hint(target.suffix)}")
    if lost:
        sentences.append(
            f"not kept: the tags {', '.join(dict.fromkeys(lost))}{_hint(target.suffix)}"
        )
    if len(second) < len(first):
        sentences.append(f"not kept: {len(first) - len(second)} of {len(first)} chapters")
    return sentences


def _describe(copy: Any, track: Any) -> None:
    copy.metadata.update(_tags(track.metadata, _OF_THE_STREAM))
    with suppress(AttributeError):  # of subtitles in older versions of PyAV
        copy.disposition = track.disposition


def is_still(track: Any) -> bool:
    """Return whether a stream is a picture, such as a cover."""
    return bool(track.disposition & load_av().stream.Disposition.attached_pic)


def _is_gap(packet: Any) -> bool:
    """Return whether a packet is the empty text between two of mp4, whose muxer writes its own."""
    name = getattr(packet.stream.codec_context, "name", None)
    return name == "mov_text" and bytes(packet) == b"\0\0"


def _tags(metadata: Mapping[str, str], without: set[str]) -> dict[str, str]:
    return {
        "title" if key == "name" else key: value  # mp4 writes one and reads the other
        for key, value in metadata.items()
        if key.lower().partition("-")[0] not in without and not key.startswith("_STATISTICS")
    }


def _missing(before: Mapping[str, str], after: Mapping[str, str], without: set[str]) -> list[str]:
    """Return the keys whose values are nowhere: containers have names of their own for some."""
    written = set(after.values())
    wanted = _tags(before, without)
    return [key for key, value in wanted.items() if value not in written and value != "und"]


def _name(track: Any) -> str:
    codec = getattr(track.codec_context, "name", None)
    language = track.metadata.get("language")
    about = ", ".join(text for text in (codec, language) if text and text != "und")
    name = getattr(track, "name", None)
    if track.type == "attachment":
        return f"attachment {name}"
    words = _KINDS.get(track.type, f"{track.type} stream")
    return f"{words} {track.index}" + (f" ({about})" if about else "")


def _hint(suffix: str, track: Any = None) -> str:
    codec = getattr(getattr(track, "codec_context", None), "name", None)
    other = ".mp4" if codec == "mov_text" else ".mkv"
    if suffix.lower() == other or (track is not None and track.type in ("data", "video")):
        return ""
    return f", which {suffix} does not hold: choose {other}"
