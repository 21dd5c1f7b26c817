"""One large image of a run, read, restored and written row by row."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from ....core.arrays import Array
from ....core.files.reading import open_regular
from ....core.files.writing import make_folder
from ....core.ports.pixels import from_range, to_range
from ...images.image_data import luma_of
from ...images.images import check_size, image_format, open_image
from ...images.strips import RowReader, write_strips
from ...tiling.run_tiled import run_strips
from ...tiling.tile_plan import even_tile, plan_tiles
from .image_job import LEAST_ROWS
from .options import RunOptions
from .restorer import Restorer, check_output
from .result import ImageResult

_WINDOW = 192 << 20
"""Bytes of the rows of both that are held."""
_SIDE = 1024
"""Width of a tile in pixels where the memory has no say."""
_SAMPLES = 1 << 20
"""Values of input and output by which the range of the output is judged."""


def restore_in_strips(
    restorer: Restorer,
    options: RunOptions,
    source: Path,
    target: Path,
    move: Callable[[int, int], None],
) -> ImageResult | None:
    """Restore a large image; None if it has alpha, an orientation or floating point.

    Such an image can only be held as a whole.

    Args:
        restorer: The model.
        options: Options of the run.
        source: The image.
        target: Its output, which may be written.
        move: Called with (tiles done, tiles in total).

    Raises:
        NystraError: The image is damaged or too large, or the model fails.
    """
    begin = time.perf_counter()
    name = str(source)
    with open_regular(source, "the image") as stream, open_image(stream, name) as file:
        check_size(name, file.size)
        reader = RowReader.of(file, name)
    if reader is None:
        return None
    run = _Run(restorer, reader, name)
    size = (reader.size[0] * restorer.scale, reader.size[1] * restorer.scale)
    make_folder(target.parent)
    none = np.empty((0, 0, run.channels), np.float32)
    image = replace(reader.image, pixels=none).with_profile_of(reader.image)
    lost = write_strips(
        target,
        run.strips(move, **options.tiling),
        size,
        image,
        image_format(target),
        options.quality,
    )
    return ImageResult(
        name,
        output=str(target),
        warnings=[*run.warnings, *image.notes, *lost],
        input_size=reader.size[::-1],
        output_size=size[::-1],
        seconds=time.perf_counter() - begin,
        model_seconds=run.seconds,
        tiles=run.tiles,
    )


class _Run:
    """A model on the rows of an image, with the channels as `Restorer` matches them."""

    def __init__(self, restorer: Restorer, reader: RowReader, name: str) -> None:
        self._restorer, self._reader, self._name = restorer, reader, name
        takes, gives, channels = restorer.input_channels, restorer.output_channels, reader.channels
        self._luma_before = takes == 1 and gives == 3 and channels == 3
        self._planes = 1 if self._luma_before else channels
        self._luma_after = self._planes < takes and gives == 3
        self.channels = channels if self._planes > takes else 1 if self._luma_after else gives
        self.tiles, self.seconds, self.warnings = 0, 0.0, list[str]()
        self._inputs, self._outputs = list[Array](), list[Array]()
        height, width = reader.size
        self._step = max(math.isqrt(height * width * 3 // _SAMPLES), 1)

    def strips(
        self,
        move: Callable[[int, int], None],
        tile: int = 0,
        overlap: int | None = None,
        max_memory: int | None = None,
    ) -> Iterator[Array]:
        """Yield the result, (rows, W, C), from top to bottom."""
        network = self._restorer
        side, shared = _tile(network, self._reader.size, tile, overlap, max_memory)
        plan = plan_tiles(
            self._reader.size,
            side,
            shared,
            network.size_multiple,
            fixed=network.fixed_size is not None,
        )
        parts = max(self._planes // network.input_channels, 1)
        self.tiles = len(plan) * parts

        def step(done: int, total: int) -> None:
            move(done * parts, total * parts)

        rows = run_strips(
            self._function, self._read, plan, network.scale, step, batch=network.batch
        )
        for strip in rows:
            pixels = np.moveaxis(from_range(strip, network.output_range), 0, 2)
            if self._luma_after:
                pixels = luma_of(pixels)[:, :, None]
            if not np.isfinite(pixels).all():
                check_output(pixels, pixels, self._name)
            self._outputs.append(pixels[:: self._step, :: self._step].copy())
            yield pixels
            del strip, pixels  # before the memory of the next ones is taken
        self._reader.close()
        # Before the file is in its place: an output of another range is none.
        result, source = np.concatenate(self._outputs), np.concatenate(self._inputs)
        self.warnings = check_output(result, source, self._name, self._restorer)

    def _read(self, rows: int) -> Array:
        planes = self._reader.read(rows)
        if self._luma_before:
            planes = luma_of(np.moveaxis(planes[0], 0, 2))[None, None]
        sample = planes[0, :, :: self._step, :: self._step]
        self._inputs.append(np.moveaxis(sample, 0, 2).copy())
        return to_range(planes, self._restorer.range)

    def _function(self, tiles: Array) -> Array:
        begin = time.perf_counter()
        network, channels = self._restorer, tiles.shape[1]
        if channels > network.input_channels:
            parts = [network.function(tiles[:, i : i + 1])[:, :1] for i in range(channels)]
            output: Array = np.concatenate(parts, 1)
        elif channels < network.input_channels:
            output = network.function(np.repeat(tiles, network.input_channels, axis=1))
        else:
            output = network.function(tiles)
        self.seconds += time.perf_counter() - begin
        return output


def _tile(
    network: Restorer,
    size: tuple[int, int],
    tile: int,
    overlap: int | None,
    max_memory: int | None,
) -> tuple[int | tuple[int, int], int]:
    """Return tile and overlap; an automatic tile is as high as the rows that may be held."""
    height, width = size
    numbers = network.input_channels + network.output_channels * network.scale**2
    multiple = network.size_multiple
    rows = max(_WINDOW // (4 * numbers * width), LEAST_ROWS, network.size_minimum)
    rows = min(-(-rows // multiple) * multiple, height)
    side, shared = network.choose_tiles((rows, width), rows * width, tile, overlap, max_memory)
    if tile or isinstance(side, tuple):
        return side or tile, shared
    wide = min(side or _SIDE, width)
    even = even_tile((height, width), wide, shared, multiple, network.size_minimum)
    return (min(side or rows, rows), even[1]), shared
