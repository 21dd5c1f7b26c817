"""The finished parts of a video, kept next to it until it is complete.

``clip.mp4.parts`` contains ``job.json``, which identifies the job, and a file for each sequence of
frames, named after its first frame and its length. Each is written completely or not at all.

An encoder cannot stop in the middle of a part and continue later with the same result. So that a
video has the same bytes however often its run was interrupted, the frames after the last part are
kept uncompressed, in a file each, and a run that continues encodes them again.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ...core.arrays import Array
from ...core.errors import NystraError
from ...core.files.ownership import require_own_folder
from ...core.files.writing import atomic_write_bytes, make_folder
from ...core.json_text import read_json, stable_json, utf8_text
from .encoding import Packet

_NAME = re.compile(r"([0-9]{9})_([0-9]{4})\.npz")
_FRAME = re.compile(r"[0-9]{9}\.frame")
_JOB = "job.json"
_DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)


class Parts:
    """A folder of parts.

    Attributes:
        folder: Their folder.
        done: Number of frames in parts, from the first one on.
        pending: Number of complete frames after them; one that a killed run left half-written is
            not counted.
    """

    def __init__(self, target: Path, job: Mapping[str, str], *, fresh: bool = False) -> None:
        """Look for parts of a video; nothing is written before the first one is saved.

        Args:
            target: The video to write.
            job: What the packets depend on.
            fresh: Restore all frames again, even existing ones.

        Raises:
            NystraError: There are parts of another job.
        """
        self.folder = target.with_name(f"{target.name}.parts")
        self._job = {utf8_text(key): utf8_text(value) for key, value in job.items()}
        self._fresh = fresh
        require_own_folder(self.folder, "remove it, or choose another output")
        if self.folder.exists() and not fresh:
            self._check()
        self._files = [] if fresh else _chain(self.folder)
        self.done = sum(count for _, count in self._files)
        self.pending = 0 if fresh else sum(1 for _ in self._frames())

    def add(self, time: int, planes: Sequence[Array]) -> None:
        """Keep the next frame after the last part.

        Raises:
            NystraError: It cannot be written, or the disk is full.
        """
        place = self._frame(self.done + self.pending)
        try:
            with place.open("wb") as stream:
                np.savez(stream, np.int64(time), *planes)
        except OSError as error:
            raise NystraError(f"{place} cannot be written: {error.strerror}") from error
        self.pending += 1

    def frames(self) -> Iterator[tuple[int, list[Array]]]:
        """Yield time and planes of the frames after the last part."""
        return itertools.islice(self._frames(), self.pending)

    def _frames(self) -> Iterator[tuple[int, list[Array]]]:
        with contextlib.suppress(*_DAMAGED):
            for index in itertools.count(self.done):
                time, *planes = _arrays(self._frame(index)).values()
                yield int(time), planes

    def _frame(self, index: int) -> Path:
        return self.folder / f"{index:09d}.frame"

    def save(self, packets: list[Packet], extradata: bytes) -> None:
        """Save the packets of the frames after the last part, one for each, in their place.

        Raises:
            NystraError: The folder cannot be written, or the disk is full.
        """
        self.begin()
        place = self.folder / f"{self.done:09d}_{len(packets):04d}.npz"
        buffer = io.BytesIO()
        np.savez(
            buffer,
            pts=np.array([packet.pts for packet in packets], np.int64),
            dts=np.array([packet.dts for packet in packets], np.int64),
            key=np.array([packet.key for packet in packets], np.bool_),
            size=np.array([len(packet.data) for packet in packets], np.int64),
            data=np.frombuffer(b"".join(packet.data for packet in packets), np.uint8),
            extradata=np.frombuffer(extradata, np.uint8),
        )
        atomic_write_bytes(place, buffer.getvalue())
        self._files.append((place, len(packets)))
        before, self.done, self.pending = self.done, self.done + len(packets), 0
        for index in range(before, self.done):
            self._frame(index).unlink(missing_ok=True)

    def packets(self, extradata: bytes) -> Iterator[Packet]:
        """Yield the packets of all parts in decoding order.

        Raises:
            NystraError: A part is damaged, or another encoder made it.
        """
        for place, count in self._files:
            yield from _read(place, count, extradata)

    def remove(self) -> None:
        """Remove the parts and the folder; other files in it are kept, and the folder with them."""
        if not self.folder.is_dir():
            return
        for place in self.folder.iterdir():
            if place.name == _JOB or _NAME.fullmatch(place.name) or _FRAME.fullmatch(place.name):
                place.unlink()
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def begin(self) -> None:
        """Create the folder, unless it exists and its parts are kept.

        Raises:
            NystraError: It cannot be written, or the disk is full.
        """
        if self.folder.exists() and not self._fresh:
            return
        self.remove()
        make_folder(self.folder)
        atomic_write_bytes(self.folder / _JOB, stable_json(self._job))
        self._fresh = False

    def _check(self) -> None:
        recorded = read_json(self.folder / _JOB, f"the job of {self.folder}")
        if recorded == self._job:
            return
        known = recorded if isinstance(recorded, dict) else {}
        changed = [key for key, value in self._job.items() if known.get(key) != value]
        raise NystraError(
            f"{self.folder} holds parts of a run with a different {', '.join(changed) or 'job'}: "
            "use the same settings to continue, or `overwrite` to start again"
        )


def _chain(folder: Path) -> list[tuple[Path, int]]:
    parts: dict[int, tuple[Path, int]] = {}
    for place in sorted(folder.glob("*.npz")):
        match = _NAME.fullmatch(place.name)
        if match:
            parts[int(match[1])] = (place, int(match[2]))
    files: list[tuple[Path, int]] = []
    done = 0
    while done in parts and parts[done][1] > 0:
        files.append(parts[done])
        done += parts[done][1]
    return files


def _read(place: Path, count: int, extradata: bytes) -> Iterator[Packet]:
    try:
        arrays = _arrays(place)
        ends = np.cumsum(arrays["size"])
        if len(ends) != count or ends[-1] != len(arrays["data"]) or arrays["size"].min() < 0:
            raise ValueError("its lengths contradict each other")
    except _DAMAGED as error:
        raise NystraError(f"{place} is damaged ({error}): remove it and run again") from error
    if arrays["extradata"].tobytes() != extradata:
        raise NystraError(
            f"{place} was made by another version of the encoder: remove {place.parent} and run "
            "again, or continue with that version of PyAV"
        )
    data = arrays["data"].tobytes()
    for index, end in enumerate(ends):
        begin = int(end - arrays["size"][index])
        pts, dts = int(arrays["pts"][index]), int(arrays["dts"][index])
        yield Packet(pts, dts, bool(arrays["key"][index]), data[begin : int(end)])


def _arrays(place: Path) -> dict[str, Array]:
    with place.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}
