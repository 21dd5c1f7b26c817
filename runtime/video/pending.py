"""The frames since the last part, as they were passed to the encoder.

An encoder cannot stop in the middle of a part and continue later with the same result. So that a
video has the same bytes however often its run was interrupted, the frames of an incomplete part are
kept in a file, uncompressed, and a run that continues encodes them again.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ...core.arrays import Array
from ...core.errors import NystraError

_HEAD = struct.Struct("<qI")


class PendingFrames:
    """A file of frames, each with its time and a checksum.

    Attributes:
        place: The file.
        count: Number of complete frames in it; one that a killed run left half-written is not
            counted.
    """

    def __init__(self, place: Path, like: Sequence[Array], *, fresh: bool = False) -> None:
        """Count existing frames.

        Args:
            place: The file, which may be missing.
            like: Planes with the shapes and types of each frame.
            fresh: Ignore existing frames.
        """
        self.place = place
        self._like = [(plane.shape, plane.dtype) for plane in like]
        self._bytes = sum(plane.nbytes for plane in like)
        self.count = 0 if fresh else sum(1 for _ in self.read())

    def add(self, time: int, planes: Sequence[Array]) -> None:
        """Write the next frame.

        Raises:
            NystraError: The file cannot be written, or the disk is full.
        """
        data = b"".join(plane.tobytes() for plane in planes)
        try:
            with self.place.open("r+b" if self.count else "wb") as file:
                file.seek(self.count * (_HEAD.size + self._bytes))
                file.write(_HEAD.pack(time, zlib.crc32(data)) + data)
                file.truncate()
        except OSError as error:
            raise NystraError(f"{self.place} cannot be written: {error.strerror}") from error
        self.count += 1

    def read(self) -> Iterator[tuple[int, list[Array]]]:
        """Yield time and planes of each frame, up to the first incomplete one."""
        if not self.place.is_file():
            return
        with self.place.open("rb") as file:
            while len(head := file.read(_HEAD.size)) == _HEAD.size:
                time, checksum = _HEAD.unpack(head)
                data = file.read(self._bytes)
                if len(data) != self._bytes or zlib.crc32(data) != checksum:
                    return
                yield time, self._planes(data)

    def remove(self) -> None:
        """Remove the file."""
        self.place.unlink(missing_ok=True)

    def _planes(self, data: bytes) -> list[Array]:
        planes, offset = [], 0
        for shape, dtype in self._like:
            count = int(np.prod(shape))
            planes.append(np.frombuffer(data, dtype, count, offset).reshape(shape))
            offset += count * dtype.itemsize
        return planes
