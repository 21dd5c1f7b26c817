"""One picture of a run in three steps: read it, run the model, write what it made."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ....core.arrays import Array
from ....core.errors import NystraError
from ....core.files.writing import make_folder
from ...images.images import (
    decode_picture,
    encode_picture,
    format_named,
    read_picture,
    write_picture,
)
from ...images.naming import STREAM
from ...images.picture import Picture
from ..errors import in_one_line
from .answer import RestoredPicture, restore
from .auxiliary_inputs import AuxiliaryInputs
from .options import RunOptions
from .restorer import Restorer
from .result import PictureResult
from .worklist import check_pair

_MOST_BYTES = 4 << 30

Move = Callable[[int, int], None]
"""Called with (tiles done, tiles in all)."""


@dataclass(frozen=True)
class PictureInput:
    """A picture that was read.

    Attributes:
        path: Its file.
        target: Where the result goes.
        picture: The picture.
        auxiliary: What goes with it, as a `Restorer` takes it.
        warnings: What is odd about the auxiliary inputs.
        seconds: What reading took.
    """

    path: Path
    target: Path
    picture: Picture
    auxiliary: dict[str, Array]
    warnings: list[str]
    seconds: float


@dataclass(frozen=True)
class PictureOutput:
    """What the model made of one.

    Attributes:
        source: What it was made of.
        restored: The result.
        seconds: What the model took.
    """

    source: PictureInput
    restored: RestoredPicture
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

    def read(self, path: Path, target: Path, picture: Picture | None = None) -> PictureInput:
        """Read a picture, unless it is given, and what goes with it."""
        begin = time.perf_counter()
        check_pair(path, target, overwrite=self.options.overwrite)
        before = read_input(path) if picture is None else picture
        auxiliary, warnings = self.auxiliary.read(path, before.size)
        seconds = time.perf_counter() - begin
        return PictureInput(path, target, before, auxiliary, warnings, seconds)

    def run(self, source: PictureInput, move: Move) -> PictureOutput:
        """Run the model on a picture."""
        begin = time.perf_counter()
        how = {**self.options.tiling, "auxiliary": source.auxiliary}
        restored = restore(self.restorer, source.picture, str(source.path), progress=move, **how)
        return PictureOutput(source, restored, time.perf_counter() - begin)

    def write(self, output: PictureOutput) -> PictureResult:
        """Write a result, and return what became of the picture."""
        begin = time.perf_counter()
        source, restored, options = output.source, output.restored, self.options
        if source.target == STREAM:
            kind = format_named(options.format or "png")
            sys.stdout.buffer.write(encode_picture(restored.picture, kind, quality=options.quality))
            sys.stdout.buffer.flush()
        else:
            make_folder(source.target.parent)
            write_picture(
                source.target,
                restored.picture,
                overwrite=options.overwrite,
                quality=options.quality,
            )
        return PictureResult(
            str(source.path),
            output=str(source.target),
            warnings=source.warnings + restored.warnings,
            input_size=_width_height(source.picture),
            output_size=_width_height(restored.picture),
            seconds=source.seconds + output.seconds + time.perf_counter() - begin,
            model_seconds=output.seconds,
            tiles=restored.tiles,
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
    """PictureInput a picture, or what the standard input holds.

    Raises:
        NystraError: As `read_picture`.
    """
    if path != STREAM:
        return read_picture(path)
    data = sys.stdin.buffer.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise NystraError(f"the standard input holds more than {_MOST_BYTES >> 30} GiB")
    return decode_picture(data, "the standard input")
