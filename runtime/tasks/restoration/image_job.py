"""One image of a run in three steps: read it, run the model, write the result."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ....core.errors import NystraError
from ....core.files.reading import regular_file
from ....core.files.writing import atomic_write_bytes, check_can_make
from ...images.image_data import ImageData
from ...images.images import (
    STREAM,
    check_writable,
    decode_image,
    format_named,
    image_format,
    read_image,
    read_image_size,
)
from ...tiling.tiled_network import DISCOURAGED
from ..result import in_one_line
from .auxiliary_roles import AuxiliaryInputs
from .options import RunOptions
from .restorer import RestoredImage, Restorer, restore
from .result import ImageResult

_MOST_BYTES = 4 << 30
_EARLY = 4_000_000
"""Pixels of an image that is read before the model is loaded."""

LARGE = 1 << 30
"""Bytes of an image and its result in float32 from which on they are not held."""

LEAST_ROWS = 128
"""Least number of rows that are held of a large image."""

_SMALL_FILE = 64 << 10
"""Bytes of a file that is not looked into, so that small ones are opened once."""
_FORMATS = ("PNG", "JPEG", "TIFF")

Move = Callable[[int, int], None]
"""Called with (tiles done, tiles in total)."""


@dataclass(frozen=True)
class ImageJob:
    """The common settings of all images of a run.

    Attributes:
        restorer: The model.
        options: Options of the run.
        auxiliary: The files of the further inputs.
    """

    restorer: Restorer
    options: RunOptions
    auxiliary: AuxiliaryInputs = field(init=False)

    def __post_init__(self) -> None:
        """Match files with inputs.

        Raises:
            NystraError: A file is missing, or one too many.
        """
        auxiliary = AuxiliaryInputs.match(self.restorer.auxiliary, self.options.auxiliary())
        object.__setattr__(self, "auxiliary", auxiliary)

    def restore(
        self, source: Path, target: Path, image: ImageData | None, move: Move
    ) -> ImageResult:
        """Restore the only image of a run, which may have been read; errors are of one line."""
        try:
            only = self.of(source, target)
            only.read(image)
            only.run(move)
            return only.write()
        except Exception as error:  # raised again as one line
            raise in_one_line(error, source) from error

    def of(self, source: Path, target: Path) -> ImageRun:
        """Return the run of one image, which has not begun."""
        return ImageRun(self, source, target)


class ImageRun:
    """One image of a run in three steps: `read`, `run` and `write`.

    Attributes:
        image: What was read; None if it is large, and read while it is restored.
    """

    def __init__(self, job: ImageJob, source: Path, target: Path) -> None:
        """Set the image and the output."""
        self.image: ImageData | None = None
        self._job, self._source, self._target = job, source, target
        self._restored: RestoredImage | None = None
        self._result: ImageResult

    def read(self, image: ImageData | None = None) -> None:
        """Read the image, unless it is given or large, and its further inputs."""
        check_pair(self._source, self._target, overwrite=self._job.options.overwrite)
        if image is not None or not is_large(self._job.restorer, self._source, self._target):
            self._read(image)

    def _read(self, image: ImageData | None) -> ImageData:
        begin = time.perf_counter()
        self.image = before = read_input(self._source) if image is None else image
        self._auxiliary, self._warnings = self._job.auxiliary.read(self._source, before.size)
        self._seconds = time.perf_counter() - begin
        return before

    def run(self, move: Move) -> None:
        """Run the model; a large image is written meanwhile."""
        restorer, options, before = self._job.restorer, self._job.options, self.image
        if before is None:
            from .in_strips import restore_in_strips  # most runs have no such image

            result = restore_in_strips(restorer, options, self._source, self._target, move)
            if result is not None:
                self._result = result
                return
            before = self._read(None)
        how = {**options.tiling, "auxiliary": self._auxiliary}
        restored = restore(restorer, before, str(self._source), progress=move, **how)
        self._restored = restored
        self._result = ImageResult(
            str(self._source),
            output=str(self._target),
            input_size=before.size[::-1],
            output_size=restored.image.size[::-1],
            seconds=self._seconds + restored.seconds,
            model_seconds=restored.seconds,
            tiles=restored.tiles,
        )

    def write(self) -> ImageResult:
        """Write the result, unless it is written, and return what is said about it."""
        if self._restored is None:
            return self._result
        begin = time.perf_counter()
        target, options = self._target, self._job.options
        if target == STREAM:
            kind = format_named(options.format or "png")
            name = "the image"
        else:
            kind = check_writable(target, overwrite=options.overwrite)
            name = f"the image for {target}"
        content, warnings = self._restored.encode(kind, options.quality, name)
        if target == STREAM:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        else:
            atomic_write_bytes(target, content)
        seconds = (self._result.seconds or 0.0) + time.perf_counter() - begin
        return replace(self._result, warnings=[*self._warnings, *warnings], seconds=seconds)


def check_pair(source: Path, target: Path, *, overwrite: bool) -> None:
    """Raise NystraError if an output may not be written."""
    if target == STREAM:
        return
    check_writable(target, None if source == STREAM else source, overwrite=overwrite)
    check_can_make(target.parent)


def result_of_failure(error: Exception, source: Path) -> ImageResult:
    """Return the result of an image that failed."""
    problem = in_one_line(error, source)
    return ImageResult(str(source), "failed", error=str(problem), exit_code=problem.exit_code)


def read_early(path: Path) -> ImageData | None:
    """Return an image before the model is loaded; None if it is not small, but one by its header.

    Raises:
        NystraError: As `read_image`.
    """
    if path != STREAM and math.prod(read_image_size(path)) > _EARLY:
        return None
    return read_input(path)


def read_input(path: Path) -> ImageData:
    """Read an image from a file or the standard input.

    Raises:
        NystraError: As `read_image`.
    """
    if path != STREAM:
        return read_image(path)
    data = sys.stdin.buffer.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise NystraError(f"the standard input holds more than {_MOST_BYTES >> 30} GiB")
    return decode_image(data, "the standard input")


def is_large(restorer: Restorer, source: Path, target: Path) -> bool:
    """Return whether an image is large by its header, and may be restored row by row.

    It may not if the model needs the whole image (means over it, masks), and into WebP.

    Raises:
        NystraError: The file is no image, or damaged.
    """
    in_one_piece = restorer.untiled or restorer.auxiliary or restorer.tiling == DISCOURAGED
    if in_one_piece or STREAM in (source, target) or image_format(target) not in _FORMATS:
        return False
    if regular_file(source, "the image").stat().st_size <= _SMALL_FILE:
        return False
    height, width = read_image_size(source)
    numbers = 3 + restorer.output_channels * restorer.scale**2
    minimum = max(restorer.size_minimum, LEAST_ROWS)
    return min(height, width) >= minimum and 4 * height * width * numbers > LARGE
