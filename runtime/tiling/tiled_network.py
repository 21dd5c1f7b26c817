"""A network on NCHW arrays of any size, in tiles that fit into the memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from ...core.arrays import Array
from ...core.errors import NystraError
from ...core.ports.examples import example_arrays
from ...core.ports.pixels import from_range, to_range
from ...core.ports.port import UNIT, Port, Range, image_size
from .memory_meter import (
    ASSUMED,
    ASSUMED_SQUARE,
    MemoryLaw,
    MemoryMeter,
    automatic_tile,
    free_memory,
    image_bytes,
    refuse_too_large,
    tile_budget,
)
from .run_tiled import Batches, ImageFunction, RepeatedTiles, run_tiled
from .tile_plan import DEFAULT_OVERLAP

DISCOURAGED = "discouraged"
"""Tiling of a model whose result depends on the tiles."""


@dataclass(frozen=True)
class TiledNetwork:
    """A function on NCHW arrays, with the properties needed to run it on large ones.

    Attributes:
        function: (B, C, h, w) -> (B, C', h * scale, w * scale), B at most ``batch``; with an
            argument (1, C, h, w), or (1, ...) of a condition, of the name of each of ``auxiliary``.
        scale: Output pixels per input pixel and axis.
        input_channels: C.
        output_channels: C'.
        range: Lowest and highest value of the input.
        output_range: The same of the output.
        size_multiple: Tiles start at its multiples, in pixels.
        size_minimum: Smaller images are mirrored up to it and cropped, in pixels.
        tiling: ``internal`` forbids tiles; ``discouraged`` allows them only if they are asked for,
            with a warning; anything else allows them.
        fixed_size: The only (height, width) the function takes, or None.
        auxiliary: The inputs besides the image; with another map the image is run whole.
        quadratic_bytes: Bytes per squared number of pixels; 0 if the memory does not grow with it.
        batch: Number of tiles per run.
        meter: Measures the memory of a run; None: it is assumed (on devices with a memory of their
            own).
        trial: As ``function``, but releases its memory; for the meter.
        batches: How batches of tiles are run, as in `run_tiled`.
        tile_psnr: PSNR in dB of tiles against the whole image, by the side of the tiles in pixels,
            where it was measured.
    """

    function: Callable[..., Array]
    scale: int = 1
    input_channels: int = 3
    output_channels: int = 3
    range: Range = UNIT
    output_range: Range = UNIT
    size_multiple: int = 1
    size_minimum: int = 1
    tiling: str = "supported"
    fixed_size: tuple[int, int] | None = None
    auxiliary: tuple[Port, ...] = ()
    quadratic_bytes: float = 0.0
    batch: int = 1
    meter: MemoryMeter | None = None
    trial: Callable[..., Array] | None = None
    batches: Batches | None = None
    tile_psnr: tuple[tuple[int, float], ...] = ()

    def run(
        self,
        image: Array,
        tile: int | tuple[int, int] | None,
        overlap: int,
        progress: Callable[[int, int], None],
        others: Mapping[str, Array] = MappingProxyType({}),
    ) -> npt.NDArray[np.float32]:
        """Run the network on an array, tile by tile.

        Args:
            image: (1, C, H, W) in 0..1.
            tile: As `choose_tiles` returns it.
            overlap: As `choose_tiles` returns it, in pixels.
            progress: Called with (tiles done, tiles in total).
            others: The inputs other than the image, by name.

        Returns:
            (1, C', H * scale, W * scale), its range mapped to 0..1, not clipped.

        Raises:
            NystraError: The network fails.
        """
        image = to_range(image, self.range)
        function: ImageFunction = partial(self.function, **others) if others else self.function
        output = run_tiled(
            function,
            image,
            tile,
            overlap,
            self.scale,
            self.size_multiple,
            progress,
            fixed=self.fixed_size is not None,
            batch=self.batch,
            batches=self.batches,
        )
        return from_range(output, self.output_range)

    @property
    def untiled(self) -> bool:
        """Whether the network needs the whole image, so that tiles are not possible."""
        return self.tiling == "internal" or any(port.has_sides for port in self.auxiliary)

    @property
    def tile_loss(self) -> str:
        """The measured loss of tiles as a part of a sentence; empty if none was measured."""
        if not self.tile_psnr:
            return ""
        figures = ", ".join(f"{psnr:.1f} dB in tiles of {side}" for side, psnr in self.tile_psnr)
        return f" (measured at export, a photograph against its whole run: {figures})"

    @property
    def worst(self) -> MemoryLaw:
        """The most memory of a run that is possible without a measurement."""
        linear_only = self.meter is not None and self.meter.linear_only
        square = 0.0 if linear_only else max(self.quadratic_bytes, ASSUMED_SQUARE)
        return MemoryLaw(ASSUMED.linear, square)

    def choose_tiles(
        self,
        size: tuple[int, int],
        pixels: int,
        tile: int,
        overlap: int | None,
        max_memory: int | None,
    ) -> tuple[int | tuple[int, int] | None, int]:
        """Return the tile and the overlap for an array.

        Args:
            size: Its height and width.
            pixels: The larger number of its own pixels and those of its reference.
            tile: The requested tile.
            overlap: The requested overlap.
            max_memory: The requested memory limit.

        Raises:
            NystraError: The options contradict the network, or the memory does not suffice.
        """
        if tile < 0:
            raise NystraError(f"`tile` is {tile} pixels, expected 0 (automatic) or more")
        if self.fixed_size is not None:
            if self.untiled:
                self.refuse_larger(size)
            if tile not in (0, *self.fixed_size):
                raise NystraError(
                    f"the model takes exactly {self.fixed_size[0]}x{self.fixed_size[1]} pixels, "
                    f"so tiles of {tile} are not possible: omit `tile`"
                )
            return self.fixed_size, _overlap(min(self.fixed_size), 1, overlap)
        if self.untiled:
            if tile:
                raise NystraError(f"the model needs the whole image{self.tile_loss}: omit `tile`")
            self._refuse_too_large(size, pixels, max_memory, "an image")
            return None, 0
        if tile:
            if tile < self.size_minimum:
                raise NystraError(
                    f"`tile` is {tile}, the model needs at least {self.size_minimum} pixels"
                )
            sides = (min(tile, size[0]), min(tile, size[1]))
            self._refuse_too_large(sides, sides[0] * sides[1], max_memory, "a tile")
            return tile, _overlap(tile, self.size_multiple, overlap)
        budget = tile_budget(size, self._channels, self._free(max_memory))
        law = self._law(pixels, budget)
        if law is None:
            law = replace(ASSUMED, square=self.quadratic_bytes)
        elif law != self.worst:  # the measurement allocated memory
            budget = tile_budget(size, self._channels, self._free(max_memory))
        shared = DEFAULT_OVERLAP if overlap is None else overlap
        if law.square and overlap is None:
            shared = 0  # the tile comes first: it may be smaller than the default overlap
        side = automatic_tile(
            size,
            law,
            budget,
            multiple=self.size_multiple,
            overlap=shared,
            minimum=self.size_minimum,
        )
        if side is not None and self.tiling == DISCOURAGED:
            raise NystraError(
                f"an image of {size[0]}x{size[1]} does not fit into the memory as a whole, and "
                f"tiles change the result of this model{self.tile_loss}: give it more memory "
                f"(`max_memory`), or `tile` {side} to cut it nevertheless"
            )
        if law.square and side is not None:
            shared = _overlap(side, self.size_multiple, overlap)
        return side, shared

    def refuse_larger(self, size: tuple[int, int]) -> None:
        """Raise NystraError where an image (height, width) is larger than the fixed size.

        It is for networks that have to see the whole image.
        """
        if self.fixed_size is not None and (
            size[0] > self.fixed_size[0] or size[1] > self.fixed_size[1]
        ):
            raise NystraError(
                f"the model takes exactly {self.fixed_size[0]}x{self.fixed_size[1]} pixels and "
                f"needs the whole image{self.tile_loss}, and this image is {size[0]}x{size[1]}: "
                "export it without `static`; see docs/running.md"
            )

    def without_repeats(self, size: tuple[int, int], max_memory: int | None) -> RepeatedTiles:
        """Return the runner of the tiles of a video's frames, for `batches`; see `RepeatedTiles`.

        Args:
            size: Height and width of the frames.
            max_memory: As in `choose_tiles`.

        Raises:
            NystraError: The process already uses more memory than that.
        """
        free = self._free(max_memory) - image_bytes(size, self._channels)
        return RepeatedTiles(max(free, 0) // 8)  # beside the budget of a tile

    @property
    def _channels(self) -> int:
        return self.input_channels + 2 * self.output_channels * self.scale**2

    def _refuse_too_large(
        self, size: tuple[int, int], pixels: int, max_memory: int | None, what: str
    ) -> None:
        """Raise NystraError if a run is known not to fit; an assumed law refuses nothing."""
        law = self._law(pixels, self._free(max_memory))
        if law is None:
            law = MemoryLaw(0.0, self.quadratic_bytes)
        refuse_too_large(size, pixels, law, self._free(max_memory), what)

    def _free(self, max_memory: int | None) -> int:
        return free_memory(0 if self.meter is None else self.meter.bytes_kept, max_memory)

    def _law(self, pixels: int, budget: int) -> MemoryLaw | None:
        """Return the memory law of runs, measured if the worst case does not fit."""
        if self.meter is None:
            return None
        if pixels <= self.worst.max_pixels(budget):
            return self.worst
        return self.meter.measure(
            self._trial, pixels, budget, multiple=self.size_multiple, minimum=self.size_minimum
        )

    def _trial(self, side: int) -> None:
        gray = np.float32(sum(self.range) / 2)
        image = np.full((self.batch, self.input_channels, side, side), gray)
        others = example_arrays(self.auxiliary, image_size(side, side))
        (self.trial or self.function)(image, **others)


def _overlap(tile: int, multiple: int, overlap: int | None) -> int:
    if overlap is not None:
        return overlap
    side = tile // multiple * multiple
    return max(min(DEFAULT_OVERLAP, side // 4, side - multiple), 0)
