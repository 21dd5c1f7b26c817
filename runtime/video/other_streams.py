"""What a video file holds besides its frames, copied into another file by PyAV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any

from .file_source import is_still

_OF_THE_ENCODING = {
    *("encoder", "major_brand", "minor_version", "compatible_brands", "duration", "rotate"),
    *("handler_name", "vendor_id", "filename", "mimetype", "alpha_mode", "bps", "timecode"),
    *("number_of_frames", "number_of_bytes"),
}
"""Tags that describe a file or an encoding, and not the video."""


class OtherStreams:
    """The streams of an open video besides its frames, its chapters and tags.

    Attributes:
        lost: What was not copied, one sentence each.
    """

    def __init__(self, container: Any, video: Any) -> None:
        self._container, self._video = container, video
        self._copies: dict[int, Any] = {}
        self._packets: Iterator[Any] = iter(())
        self._next: Any = None
        self.lost: list[str] = []

    def add_to(self, output: Any, stream: Any) -> None:
        """Add streams, chapters and tags to a container before anything is written to it.

        Args:
            output: A container of PyAV that is open for writing.
            stream: Its video stream.

        Raises:
            ValueError: It does not hold the sound.
        """
        _describe(stream, self._video)
        for track in self._container.streams:
            if track.index != self._video.index and not self._add(output, track):
                self.lost.append(f"not kept: the {describe(track)}, which the output does not hold")
        output.set_chapters(self._container.chapters())
        output.metadata.update(_tags(self._container.metadata))
        self._packets = self._read_packets()

    def copy_until(self, output: Any, time: Fraction | None) -> None:
        """Copy the packets up to a time in seconds, or all that are left."""
        while True:
            self._next = self._next or next(self._packets, None)
            if self._next is None:
                return
            packet = self._next
            if time is not None and packet.dts * packet.time_base > time:
                return
            packet.stream = self._copies[packet.stream.index]
            output.mux(packet)
            self._next = None

    def find_lost_tags(self, copy: Any) -> list[str]:
        """Return what an open copy does not have of tags and chapters, in sentences."""
        written, lost = set(copy.metadata.values()), []
        tags = _tags(self._container.metadata)
        missing = [key for key, value in tags.items() if value not in written]
        if missing:
            lost.append(f"not kept: the tags {', '.join(missing)}, which the output does not hold")
        pictures = [sum(map(is_still, file.streams.video)) for file in (self._container, copy)]
        if pictures[1] < pictures[0]:
            lost.append("not kept: the cover, which the output does not hold")
        chapters = len(self._container.chapters()) - len(copy.chapters())
        if chapters > 0:
            lost.append(f"not kept: {chapters} chapters, which the output does not hold")
        return lost

    def _read_packets(self) -> Iterator[Any]:
        tracks = [track for track in self._container.streams if track.index in self._copies]
        for packet in self._container.demux(tracks) if tracks else ():
            if packet.dts is None and is_still(packet.stream):
                packet.pts = packet.dts = 0
            if packet.dts is not None and packet.size and not _is_gap(packet):
                yield packet

    def _add(self, output: Any, track: Any) -> bool:
        """Add a stream; return whether the container holds it."""
        matroska = output.format.name == "matroska"
        if track.type == "attachment" or (matroska and is_still(track)):
            return matroska and self._attach(output, track)
        if track.type == "data":
            # mp4 also holds the titles of chapters as such a stream.
            return bool(self._container.chapters())
        if track.type == "video" and not is_still(track):
            return False
        try:
            self._copies[track.index] = output.add_stream_from_template(track)
        except ValueError:
            if track.type == "audio":
                raise
            return False
        _describe(self._copies[track.index], track)
        return True

    def _attach(self, output: Any, track: Any) -> bool:
        """Attach a font or a cover, which Matroska holds as an attachment."""
        if track.type == "attachment":
            kind = track.mimetype or "application/octet-stream"
            output.add_attachment(track.name or "attachment", kind, bytes(track.data))
            return True
        picture = next(packet for packet in self._container.demux(track) if packet.size)
        self._container.seek(0)
        ending = {"mjpeg": "jpeg"}.get(track.codec_context.name, track.codec_context.name)
        name = track.metadata.get("filename") or f"cover.{ending}"
        output.add_attachment(name, f"image/{ending}", bytes(picture))
        return True


def describe(track: Any) -> str:
    """Return a stream in words: ``subtitle stream 1 (srt, ger)``."""
    if track.type == "attachment":
        return f"attachment {track.name}"
    codec, language = getattr(track.codec_context, "name", None), track.metadata.get("language")
    about = ", ".join(text for text in (codec, language) if text and text != "und")
    return f"{track.type} stream {track.index}" + (f" ({about})" if about else "")


def _describe(copy: Any, track: Any) -> None:
    copy.metadata.update(_tags(track.metadata))
    with suppress(AttributeError):  # of subtitles in older versions of PyAV
        copy.disposition = track.disposition


def _is_gap(packet: Any) -> bool:
    """Return whether a packet is the empty text between two of mp4, whose muxer writes its own."""
    name = getattr(packet.stream.codec_context, "name", None)
    return name == "mov_text" and bytes(packet) == b"\0\0"


def _tags(metadata: Mapping[str, str]) -> dict[str, str]:
    return {
        "title" if key == "name" else key: value  # mp4 writes one and reads the other
        for key, value in metadata.items()
        if key.lower().partition("-")[0] not in _OF_THE_ENCODING
        and not key.startswith("_STATISTICS")
    }
