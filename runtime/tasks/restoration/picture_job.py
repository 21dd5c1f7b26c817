"""One picture of a run in three steps: read it, run the model, write what it made."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ....core.errors import NystraError
from ....core.files.writing import make_folder
from ...images.images import (
    decode_picture,
    encode_picture,
    format_named,
    read_picture,
    write_picture,
)
from ...images.picture import Array, Picture
from ..errors import in_one_line
from .answer import restore
from .auxiliary_inputs import AuxiliaryInputs
from .options import RunOptions
from .restorer import Restorer
from .result import PictureResult
from .worklist import STREAM, check_pair

_MOST_BYTES = 4 << 30

Move = Callable[[int, int], None]
"""Called with (tiles done, tiles in all)."""


@dataclass(frozen=True)
class Read:
    """A picture that was read.

    Attributes:
        here: Its file.
        there: Where the result goes.
        picture: The picture.
        auxiliary: What goes with it, as a `Restorer` takes it.
        doubts: What is odd about those.
        seconds: What reading took.
    """

    here: Path
    there: Path
    picture: Picture
    auxiliary: dict[str, Array]
    doubts: list[str]
    seconds: float


@dataclass(frozen=True)
class Made:
    """What the model made of one.

    Attributes:
        read: What it was given.
        picture: The result.
        tiles: That were run.
        findings: What is odd about the result.
        seconds: What the model took.
    """

    read: Read
    picture: Picture
    tiles: int
    findings: list[str]
    seconds: float


@dataclass(frozen=True)
class PictureJob:
    """What is the same for all pictures of a run.

    Attributes:
        restorer: The model.
        options: Of the run.
        auxiliary: The files that go with the pictures.
    """

    restorer: Restorer
    options: RunOptions
    auxiliary: AuxiliaryInputs = field(init=False)

    def __post_init__(self) -> None:
        """Find out which file is for which input.

        Raises:
            NystraError: A file is missing, or one too many.
        """
        auxiliary = AuxiliaryInputs.match(self.restorer.auxiliary, self.options.auxiliary())
        object.__setattr__(self, "auxiliary", auxiliary)

    def read(self, here: Path, there: Path, picture: Picture | None = None) -> Read:
        """Read a picture, unless it is given, and what goes with it."""
        begin = time.perf_counter()
        check_pair(here, there, overwrite=self.options.overwrite)
        before = read_input(here) if picture is None else picture
        auxiliary, doubts = self.auxiliary.read(here, before.size)
        return Read(here, there, before, auxiliary, doubts, time.perf_counter() - begin)

    def run(self, read: Read, move: Move) -> Made:
        """Run the model on a picture."""
        begin = time.perf_counter()
        how = {**self.options.tiling, "auxiliary": read.auxiliary}
        made = restore(self.restorer, read.picture, str(read.here), progress=move, **how)
        return Made(read, made.picture, made.tiles, made.warnings, time.perf_counter() - begin)

    def write(self, made: Made) -> PictureResult:
        """Write a result, and return what is said of the picture."""
        begin = time.perf_counter()
        read, given = made.read, self.options
        if read.there == STREAM:
            kind = format_named(given.format or "png")
            sys.stdout.buffer.write(encode_picture(made.picture, kind, quality=given.quality))
            sys.stdout.buffer.flush()
        else:
            make_folder(read.there.parent)
            write_picture(
                read.there, made.picture, overwrite=given.overwrite, quality=given.quality
            )
        return PictureResult(
            str(read.here),
            output=str(read.there),
            warnings=read.doubts + made.findings,
            input_size=_width_height(read.picture),
            output_size=_width_height(made.picture),
            seconds=read.seconds + made.seconds + time.perf_counter() - begin,
            model_seconds=made.seconds,
            tiles=made.tiles,
        )

    def restore(
        self, here: Path, there: Path, picture: Picture | None, move: Move
    ) -> PictureResult:
        """Do all three with one picture, which may have been read already."""
        return self.write(self.run(self.read(here, there, picture), move))

    def restore_only(
        self, here: Path, there: Path, picture: Picture | None, move: Move
    ) -> PictureResult:
        """Restore the only picture of a run: whatever is wrong is raised, in one line."""
        try:
            return self.restore(here, there, picture, move)
        except Exception as error:
            raise in_one_line(error, here) from error


def _width_height(picture: Picture) -> tuple[int, int]:
    height, width = picture.size
    return width, height


def failed(error: Exception, here: Path) -> PictureResult:
    """Return what is said of a picture that failed."""
    return PictureResult(str(here), status="failed", error=str(in_one_line(error, here)))


def read_input(path: Path) -> Picture:
    """Read a picture, or what the standard input holds.

    Raises:
        NystraError: As `read_picture`.
    """
    if path != STREAM:
        return read_picture(path)
    data = sys.stdin.buffer.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise NystraError(f"the standard input holds more than {_MOST_BYTES >> 30} GiB")
    return decode_picture(data, "the standard input")
