"""From a model that takes NCHW arrays to one that takes a picture's pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ...plugins.errors import NystraError
from .memory_law import MemoryLaw
from .memory_meter import MemoryMeter
from .mirror import mirror_to
from .tile_memory import (
    ASSUMED,
    ASSUMED_SQUARE,
    automatic_tile,
    free_memory,
    refuse_too_large,
    tile_budget,
)
from .tile_plan import DEFAULT_OVERLAP
from .tiling import ImageFunction, run_tiled

Array = npt.NDArray[Any]

GREY_WEIGHTS = np.array((0.299, 0.587, 0.114), np.float32)
"""Weights of red, green and blue in the luma of BT.601."""


@dataclass(frozen=True)
class Restorer:
    """A function on NCHW arrays with what has to be known to run it on pictures.

    Attributes:
        function: (B, C, h, w) -> (B, C', h * scale, w * scale), B at most ``batch``; with
            arguments named ``mask_input`` and ``reference_input`` where these are set.
        scale: Output pixels per input pixel and axis.
        input_channels: C: 1 or 3.
        output_channels: C': 1 or 3.
        range: Lowest and highest value of the input.
        output_range: The same of the output.
        size_multiple: Tiles start at its multiples, in pixels.
        size_minimum: Smaller pictures are mirrored up to it and cropped, in pixels.
        tiling: ``internal`` forbids tiles; anything else allows them.
        fixed_size: The only (height, width) the function takes, or None.
        mask_input: Name of the input that marks the hole to fill, or None.
        reference_input: Name of the input that takes another picture in colour, or None.
        quadratic_bytes: How the memory grows with the square of the pixels; 0 if it does not.
        batch: How many tiles are run at once.
        meter: Measures what a run takes; None assumes it (on devices with a memory of their own).
        trial: As ``function``, and gives its memory back; for the meter.
    """

    function: Callable[..., Array]
    scale: int = 1
    input_channels: int = 3
    output_channels: int = 3
    range: tuple[float, float] = (0.0, 1.0)
    output_range: tuple[float, float] = (0.0, 1.0)
    size_multiple: int = 1
    size_minimum: int = 1
    tiling: str = "supported"
    fixed_size: tuple[int, int] | None = None
    mask_input: str | None = None
    reference_input: str | None = None
    quadratic_bytes: float = 0.0
    batch: int = 1
    meter: MemoryMeter | None = None
    trial: Callable[..., Array] | None = None

    def __post_init__(self) -> None:
        """Refuse channel counts that no picture has."""
        for name, channels in (("takes", self.input_channels), ("gives", self.output_channels)):
            if channels not in (1, 3):
                raise NystraError(
                    f"the model {name} {channels} channels, expected 1 (grey) or 3 (RGB): run it "
                    "from Python with nystra.runtime.Session"
                )

    def __call__(
        self,
        pixels: Array,
        tile: int = 0,
        overlap: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        *,
        mask: Array | None = None,
        reference: Array | None = None,
        max_memory: int | None = None,
    ) -> tuple[npt.NDArray[np.float32], int]:
        """Run the model on a picture's pixels.

        A grey picture goes into a 3-channel model three times and comes out as grey (luma
        weights of BT.601); the channels of a colour picture go one by one through a 1-channel
        model, and its luma alone through one that makes colour out of grey.

        Args:
            pixels: (H, W, C) in 0..1, C 1 or 3.
            tile: Side of the tiles in input pixels; 0 chooses by the available memory.
            overlap: Of the tiles in input pixels; None is 32, less where the tile is small.
            progress: Called with (tiles done, tiles in all).
            mask: (H, W), 1 in the hole and 0 elsewhere; where the model takes one.
            reference: (Hr, Wr, C) in 0..1; where the model takes one.
            max_memory: Bytes that this process may take in all; None is what is available.

        Returns:
            (H * scale, W * scale, C') in the model's output range mapped to 0..1, not clipped;
            and the number of tiles that were run.

        Raises:
            NystraError: The sizes contradict each other, a mask or reference is missing or one
                too many, the memory does not suffice, or the model fails.
        """
        if self.input_channels == 1 and self.output_channels == 3 and pixels.shape[2] == 3:
            pixels = (pixels @ GREY_WEIGHTS)[:, :, None]
        channels = pixels.shape[2]
        image = np.ascontiguousarray(np.moveaxis(pixels, 2, 0)[None], dtype=np.float32)
        height, width = image.shape[2:]
        least = self.size_minimum if self.fixed_size is None else 1
        image = mirror_to(image, max(height, least), max(width, least))
        self.check_companions(mask is not None, reference is not None)
        if mask is not None:
            check_mask_size(mask, (height, width))
        others = self._others(image, mask, reference)
        if others and self.fixed_size is not None:
            image = mirror_to(image, *self.fixed_size)
        pair = max(image[0, 0].size, 0 if reference is None else reference[:, :, 0].size)
        side, shared = self._tiles(image.shape[2:], pair, tile, overlap, max_memory)
        if channels > self.input_channels:
            parts = [image[:, i : i + 1] for i in range(channels)]
        elif channels < self.input_channels:
            parts = [np.repeat(image, self.input_channels, axis=1)]
        else:
            parts = [image]
        count = 0
        results = []
        for index, part in enumerate(parts):

            def step(done: int, total: int, index: int = index) -> None:
                nonlocal count
                count = index * total + done
                if progress is not None:
                    progress(index * total + done, len(parts) * total)

            results.append(self._run(part, side, shared, step, others))
        output = np.concatenate([r[:, :1] for r in results], 1) if len(parts) > 1 else results[0]
        cropped = output[0, :, : height * self.scale, : width * self.scale]
        picture = np.ascontiguousarray(np.moveaxis(cropped, 0, 2))
        if channels < self.input_channels and picture.shape[2] == 3:
            picture = (picture @ GREY_WEIGHTS)[:, :, None]
        return picture, count

    def check_companions(self, mask: bool, reference: bool) -> None:
        """Refuse a mask or a reference that the model does not take, and ask for one it needs.

        Args:
            mask: One is given.
            reference: One is given.

        Raises:
            NystraError: One is missing, or one too many.
        """
        for what, given, taken, purpose, example in (
            ("mask", mask, self.mask_input, "fills holes", "MASK.png (white = fill)"),
            ("reference", reference, self.reference_input, "copies", "PICTURE.png"),
        ):
            if given and taken is None:
                raise NystraError(f"the model takes no {what}: leave --{what} ({what}=) out")
            if taken is not None and not given:
                raise NystraError(
                    f"the model {purpose} and needs a {what}: give --{what} {example}, from "
                    f"Python {what}="
                )

    def _others(
        self, image: Array, mask: Array | None, reference: Array | None
    ) -> dict[str, Array]:
        """Return the inputs besides the image, by name; with them the picture is run whole."""
        others: dict[str, Array] = {}
        size = self.fixed_size or image.shape[2:]
        if self.mask_input or self.reference_input:
            sizes = [image.shape[2:]] + ([] if reference is None else [reference.shape[:2]])
            for height, width in sizes if self.fixed_size is not None else ():
                if height > size[0] or width > size[1]:
                    raise NystraError(
                        f"the model takes exactly {size[0]}x{size[1]} pixels and has to see the "
                        f"whole of a picture, and one is {height}x{width}: export it without "
                        "--static"
                    )
        if self.mask_input is not None and mask is not None:
            plane = np.asarray(mask, dtype=np.float32)[None, None]
            others[self.mask_input] = mirror_to(plane, size[0], size[1])
        if self.reference_input is not None and reference is not None:
            colour = np.repeat(reference, 3, axis=2) if reference.shape[2] == 1 else reference
            planes = np.moveaxis(colour, 2, 0)[None].astype(np.float32)
            if self.fixed_size is not None:
                planes = mirror_to(planes, size[0], size[1])
            others[self.reference_input] = np.ascontiguousarray(planes)
        return others

    def _run(
        self,
        image: Array,
        tile: int | tuple[int, int] | None,
        overlap: int,
        progress: Callable[[int, int], None],
        others: dict[str, Array],
    ) -> npt.NDArray[np.float32]:
        if self.range != (0.0, 1.0):
            low, high = self.range
            image = image * np.float32(high - low) + np.float32(low)
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
        )
        if self.output_range == (0.0, 1.0):
            return output
        low, high = self.output_range
        return (output - np.float32(low)) / np.float32(high - low)

    def _tiles(
        self,
        size: tuple[int, int],
        pixels: int,
        tile: int,
        overlap: int | None,
        max_memory: int | None,
    ) -> tuple[int | tuple[int, int] | None, int]:
        """Return the tile and the overlap for a picture.

        Args:
            size: Its height and width.
            pixels: Its own or those of its reference, whichever are more.
            tile: As asked for.
            overlap: As asked for.
            max_memory: As asked for.
        """
        if tile < 0:
            raise NystraError(f"the tile is {tile} pixels, expected 0 (automatic) or more")
        if self.fixed_size is not None:
            if tile not in (0, *self.fixed_size):
                raise NystraError(
                    f"the model takes exactly {self.fixed_size[0]}x{self.fixed_size[1]} pixels, so "
                    f"tiles of {tile} are not possible: leave -t out"
                )
            return self.fixed_size, _overlap(min(self.fixed_size), 1, overlap)
        if self.tiling == "internal" or self.mask_input or self.reference_input:
            if tile:
                raise NystraError("the model has to see the whole picture: leave -t out")
            self._refuse_too_large(size, pixels, max_memory, "a picture")
            return None, 0
        if tile:
            if tile < self.size_minimum:
                raise NystraError(f"the tile is {tile}, the model needs {self.size_minimum} pixels")
            sides = (min(tile, size[0]), min(tile, size[1]))
            self._refuse_too_large(sides, sides[0] * sides[1], max_memory, "a tile")
            return tile, _overlap(tile, self.size_multiple, overlap)
        channels = self.input_channels + 2 * self.output_channels * self.scale**2
        budget = tile_budget(size, channels, self._free(max_memory))
        law = self._law(pixels, budget)
        if law is None:
            law = replace(ASSUMED, square=self.quadratic_bytes)
        budget = tile_budget(size, channels, self._free(max_memory))
        wanted = DEFAULT_OVERLAP if overlap is None else overlap
        if law.square and overlap is None:
            wanted = 0  # the tile comes first: it may be smaller than the default overlap
        side = automatic_tile(
            size,
            law,
            budget,
            multiple=self.size_multiple,
            overlap=wanted,
            minimum=self.size_minimum,
        )
        if law.square and side is not None:
            wanted = _overlap(side, self.size_multiple, overlap)
        return side, wanted

    def _refuse_too_large(
        self, size: tuple[int, int], pixels: int, max_memory: int | None, what: str
    ) -> None:
        """Raise NystraError where a run is known not to fit; an assumption refuses nothing."""
        law = self._law(pixels, self._free(max_memory))
        if law is None:
            law = MemoryLaw(0.0, self.quadratic_bytes)
        refuse_too_large(size, pixels, law, self._free(max_memory), what)

    def _free(self, max_memory: int | None) -> int:
        return free_memory(0 if self.meter is None else self.meter.kept, max_memory)

    def _law(self, pixels: int, budget: int) -> MemoryLaw | None:
        """Return how a run's memory grows, measured where the worst case does not fit."""
        if self.meter is None:
            return None
        square = 0.0 if self.meter.linear_only else max(self.quadratic_bytes, ASSUMED_SQUARE)
        worst = MemoryLaw(ASSUMED.linear, square)
        if pixels <= worst.most_pixels(budget):
            return worst
        return self.meter.measure(
            self._trial, pixels, budget, multiple=self.size_multiple, minimum=self.size_minimum
        )

    def _trial(self, side: int) -> None:
        """Run the model on a grey square, with a hole in its middle or itself as reference."""
        grey = np.float32(sum(self.range) / 2)
        image = np.full((self.batch, self.input_channels, side, side), grey)
        others: dict[str, Array] = {}
        if self.mask_input is not None:
            others[self.mask_input] = np.zeros((1, 1, side, side), np.float32)
            others[self.mask_input][:, :, side // 4 : side // 2, side // 4 : side // 2] = 1
        if self.reference_input is not None:
            others[self.reference_input] = np.full((1, 3, side, side), grey)
        (self.trial or self.function)(image, **others)


def check_mask_size(mask: Array, size: tuple[int, int], name: str = "the mask") -> None:
    """Raise NystraError where a mask (H, W) is not of its picture's height and width."""
    if mask.shape != size:
        raise NystraError(
            f"{name} is {'x'.join(str(side) for side in mask.shape[1::-1] + mask.shape[2:])} "
            f"pixels, its picture {size[1]}x{size[0]}: expected the same size"
        )


def _overlap(tile: int, multiple: int, overlap: int | None) -> int:
    """Return the overlap asked for, or a default that fits the tile."""
    if overlap is not None:
        return overlap
    side = tile // multiple * multiple
    return max(min(DEFAULT_OVERLAP, side // 4, side - multiple), 0)
