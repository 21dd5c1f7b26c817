"""One image of a run in three steps: read it, run the model, write the result."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ....core.arrays import Array
from ....core.errors import NystraError
from ....core.files.reading import regular_file
from ....core.files.writing import atomic_write_bytes, check_can_make, make_folder
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
from ..result import in_one_line
from .auxiliary_roles import AuxiliaryInputs
from .options import RunOptions
from .restorer import DISCOURAGED, RestoredImage, Restorer, restore
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
class ImageInput:
    """An image that was read.

    Attributes:
        path: Its file.
        target: The output file.
        image: The image.
        auxiliary: The further inputs, as a `Restorer` takes them.
        warnings: Warnings about the auxiliary inputs.
        seconds: Time of reading.
    """

    path: Path
    target: Path
    image: ImageData
    auxiliary: dict[str, Array]
    warnings: list[str]
    seconds: float


@dataclass(frozen=True)
class LargeImage:
    """An image that is read while it is restored, and its output file."""

    path: Path
    target: Path


@dataclass(frozen=True)
class ImageOutput:
    """The output of the model for one image.

    Attributes:
        source: Its input.
        restored: The result.
        seconds: Time of the model.
    """

    source: ImageInput
    restored: RestoredImage
    seconds: float


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

    def read(
        self, path: Path, target: Path, image: ImageData | None = None
    ) -> ImageInput | LargeImage:
        """Read an image, unless it is given or large, and its further inputs."""
        check_pair(path, target, overwrite=self.options.overwrite)
        if image is None and is_large(self.restorer, path, target):
            return LargeImage(path, target)
        return self._read(path, target, image)

    def _read(self, path: Path, target: Path, image: ImageData | None) -> ImageInput:
        begin = time.perf_counter()
        before = read_input(path) if image is None else image
        auxiliary, warnings = self.auxiliary.read(path, before.size)
        seconds = time.perf_counter() - begin
        return ImageInput(path, target, before, auxiliary, warnings, seconds)

    def run(self, source: ImageInput | LargeImage, move: Move) -> ImageOutput | ImageResult:
        """Run the model on an image; the result of a large one is written already."""
        if isinstance(source, LargeImage):
            from .in_strips import restore_in_strips  # most runs have no such image

            here, there = source.path, source.target
            result = restore_in_strips(self.restorer, self.options, here, there, move)
            if result is not None:
                return result
            source = self._read(here, there, None)
        begin = time.perf_counter()
        how = {**self.options.tiling, "auxiliary": source.auxiliary}
        restored = restore(self.restorer, source.image, str(source.path), progress=move, **how)
        return ImageOutput(source, restored, time.perf_counter() - begin)

    def write(self, output: ImageOutput | ImageResult) -> ImageResult:
        """Write a result, unless it is written, and return the result of the image."""
        if isinstance(output, ImageResult):
            return output
        begin = time.perf_counter()
        source, restored, options = output.source, output.restored, self.options
        if source.target == STREAM:
            kind, name = format_named(options.format or "png"), "the image"
        else:
            kind = check_writable(source.target, overwrite=options.overwrite)
            name = f"the image for {source.target}"
        content, warnings = restored.encoded(kind, options.quality, name)
        if source.target == STREAM:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        else:
            make_folder(source.target.parent)
            atomic_write_bytes(source.target, content)
        return ImageResult(
            str(source.path),
            output=str(source.target),
            warnings=[*source.warnings, *warnings],
            input_size=_width_height(source.image),
            output_size=_width_height(restored.image),
            seconds=source.seconds + output.seconds + time.perf_counter() - begin,
            model_seconds=output.seconds,
            tiles=restored.tiles,
        )

    def restore_only(
        self, here: Path, there: Path, image: ImageData | None, move: Move
    ) -> ImageResult:
        """Restore the only image of a run; any error is raised, in one line."""
        try:
            return self.write(self.run(self.read(here, there, image), move))
        except Exception as error:
            raise in_one_line(error, here) from error


def check_pair(source: Path, target: Path, *, overwrite: bool) -> None:
    """Raise NystraError if an output may not be written."""
    if target == STREAM:
        return
    if source != STREAM and target.exists() and target.samefile(source):
        raise NystraError(f"the output {target} is the input itself: choose another output")
    check_writable(target, overwrite=overwrite)
    check_can_make(target.parent)


def _width_height(image: ImageData) -> tuple[int, int]:
    height, width = image.size
    return width, height


def failed(error: Exception, here: Path) -> ImageResult:
    """Return the result of an image that failed."""
    problem = in_one_line(error, here)
    return ImageResult(str(here), "failed", error=str(problem), exit_code=problem.exit_code)


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


def is_large(restorer: Restorer, here: Path, there: Path) -> bool:
    """Return whether an image is large by its header, and may be restored row by row.

    It may not if the model needs the whole image (means over it, masks), and into WebP.

    Raises:
        NystraError: The file is no image, or damaged.
    """
    held = restorer.whole or restorer.auxiliary or restorer.tiling == DISCOURAGED
    if held or STREAM in (here, there) or image_format(there) not in _FORMATS:
        return False
    if regular_file(here, "the image").stat().st_size <= _SMALL_FILE:
        return False
    height, width = read_image_size(here)
    numbers = 3 + restorer.output_channels * restorer.scale**2
    least = max(restorer.size_minimum, LEAST_ROWS)
    return min(height, width) >= least and 4 * height * width * numbers > LARGE
