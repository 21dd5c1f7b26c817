"""From a model that takes NCHW arrays to one that takes a picture's pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ....core.errors import NystraError
from ...tiling.mirror import mirror_to
from ...tiling.tiled_network import TiledNetwork

Array = npt.NDArray[Any]

GREY_WEIGHTS = np.array((0.299, 0.587, 0.114), np.float32)
"""Weights of red, green and blue in the luma of BT.601."""


@dataclass(frozen=True)
class Restorer(TiledNetwork):
    """A network whose channels, 1 or 3 in and out, are those of a picture."""

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
        side, shared = self.choose_tiles(image.shape[2:], pair, tile, overlap, max_memory)
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

            results.append(self.run(part, side, shared, step, others))
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


def check_mask_size(mask: Array, size: tuple[int, int], name: str = "the mask") -> None:
    """Raise NystraError where a mask (H, W) is not of its picture's height and width."""
    if mask.shape != size:
        raise NystraError(
            f"{name} is {'x'.join(str(side) for side in mask.shape[1::-1] + mask.shape[2:])} "
            f"pixels, its picture {size[1]}x{size[0]}: expected the same size"
        )
