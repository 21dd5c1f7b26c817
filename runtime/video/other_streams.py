"""What a video file holds besides its frames, copied into another file by PyAV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from .containers import describe, is_still

_OF_THE_ENCODING = {
    *("encoder", "major_brand", "minor_version", "compatible_brands", "duration", "rotate"),
    *("handler_name", "vendor_id", "filename", "mimetype", "alpha_mode", "bps", "timecode"),
    *("number_of_frames", "number_of_bytes"),
}
"""Tags that describe a file or an encoding, and not the video."""


class OtherStreams:
    """The streams of an open video besides its frames, its chapters and tags, on the way to a copy.

    Attributes:
        lost: What was not copied, in words.
    """

    def __init__(self, container: Any, video: Any, output: Any, stream: Any) -> None:
        """Add streams, chapters and tags to an output, before anything is written to it.

        Both containers come with the stream of their frames.

        Raises:
            ValueError: The output does not hold the sound.
        """
        self._container, self._output = container, output
        self._copies: dict[int, Any] = {}
        self._next: Any = None
        self.lost: list[str] = []
        _copy_description(video, stream)
        for track in container.streams:
            if track.index != video.index and not self._add(track):
                self.lost.append(describe(track))
        output.set_chapters(container.chapters())
        output.metadata.update(_tags(container.metadata))
        self._packets = self._read_packets()

    def copy_until(self, time: Fraction | None) -> None:
        """Copy the packets up to a time in seconds, or all that are left."""
        while True:
            self._next = self._next or next(self._packets, None)
            if self._next is None:
                return
            packet = self._next
            if time is not None and packet.dts * packet.time_base > time:
                return
            packet.stream = self._copies[packet.stream.index]
            self._output.mux(packet)
            self._next = None

    def find_lost(self, copy: Any) -> list[str]:
        """Return what an open copy does not hold of all of this, in sentences."""
        parts = list(self.lost)
        written = set(copy.metadata.values())
        tags = _tags(self._container.metadata)
        if missing := [key for key, value in tags.items() if value not in written]:
            parts.append(f"tags {', '.join(missing)}")
        return [f"not kept: the {part}, which the output does not hold" for part in parts]

    def _read_packets(self) -> Iterator[Any]:
        tracks = [track for track in self._container.streams if track.index in self._copies]
        for packet in self._container.demux(tracks) if tracks else ():
            if packet.dts is None and is_still(packet.stream):
                packet.pts = packet.dts = 0
            # Between two texts of mp4 is an empty one, which its muxer writes by itself.
            gap = packet.stream.type == "subtitle" and bytes(packet) == b"\0\0"
            if packet.dts is not None and packet.size and not gap:
                yield packet

    def _add(self, track: Any) -> bool:
        """Add a stream; return whether the container holds it."""
        if track.type == "data":
            # mp4 also holds the titles of chapters as such a stream.
            return bool(self._container.chapters())
        matroska = self._output.format.name == "matroska"
        if track.type == "attachment" and not matroska:
            return False
        if is_still(track) and matroska:  # which holds a cover as an attachment
            picture = next(packet for packet in self._container.demux(track) if packet.size)
            self._container.seek(0)
            ending = {"mjpeg": "jpeg"}.get(track.codec_context.name, track.codec_context.name)
            name = track.metadata.get("filename") or f"cover.{ending}"
            self._output.add_attachment(name, f"image/{ending}", bytes(picture))
            return True
        if track.type == "video" and (not is_still(track) or self._output.format.name == "mov"):
            return False
        try:
            copy = self._output.add_stream_from_template(track)
        except ValueError:
            if track.type == "audio":
                raise
            return False
        _copy_description(track, copy)
        if track.type != "attachment":
            self._copies[track.index] = copy
        return True


def _copy_description(track: Any, copy: Any) -> None:
    copy.metadata.update(_tags(track.metadata))
    copy.disposition = track.disposition


def _tags(metadata: Mapping[str, str]) -> dict[str, str]:
    tags = {}
    for key, value in metadata.items():
        own = key.lower().partition("-")[0] in _OF_THE_ENCODING or key.startswith("_STATISTICS")
        if not own:
            tags["title" if key == "name" else key] = value  # mp4 writes one and reads the other
    return tags
