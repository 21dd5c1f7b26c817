"""The pictures of a sheet: the shipped photographs, or the middle of the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.ports.examples import example_array
from ...core.ports.port import Port, picture_size
from ...runtime.images.images import read_picture
from ...runtime.images.pairs import paired_pictures
from ...runtime.tasks.restoration.auxiliary_inputs import Companions
from ...runtime.tasks.restoration.restorer import Restorer
from ..load.images import photographs

Pixels = npt.NDArray[np.float32]

MOST_PICTURES = 6
_INPUT_SIDE, _OUTPUT_SIDE, _QUADRATIC_SIDE = 256, 512, 128
_MASK = Port("mask", "mask", lengths={"batch": 1, "channels": 1})


@dataclass(frozen=True)
class Scene:
    """What a row of the sheet is about.

    Attributes:
        name: Of the picture.
        pixels: (H, W, C) in 0..1, what the model gets: a picture of its own.
        truth: (H * scale, W * scale, C') in 0..1, what it should make of it, or None.
        others: ``mask`` (H, W) and ``reference`` (Hr, Wr, C), where the model takes them.
    """

    name: str
    pixels: Pixels
    truth: Pixels | None = None
    others: dict[str, Any] = field(default_factory=dict)


def scene_side(restorer: Restorer, *, small: bool) -> int:
    """Return the side in input pixels that is shown of a picture.

    Args:
        restorer: The model file.
        small: Something runs whose memory and time grow with the square of the pixels.
    """
    return min(_QUADRATIC_SIDE if small else _INPUT_SIDE, _OUTPUT_SIDE // restorer.scale)


def shipped_scenes(restorer: Restorer, side: int) -> Iterator[Scene]:
    """Yield the shipped photographs: holes in the middle, the mirrored picture as reference.

    A photograph is the truth where the model keeps its size: of the hole, of the colours.
    """
    for name, path in photographs().items():
        pixels = read_picture(path).pixels
        pixels = pixels[_middle(pixels.shape, side)]
        others: dict[str, Any] = {}
        if restorer.mask_input is not None:
            others["mask"] = example_array(_MASK, picture_size(*pixels.shape[:2]))[0, 0]
        if restorer.reference_input is not None:
            others["reference"] = pixels[:, ::-1]
        known = bool(others) and restorer.scale == 1
        yield Scene(name, pixels, pixels if known else None, others)


def user_scenes(
    images: Path, truths: Path, companions: Companions, restorer: Restorer, side: int
) -> Iterator[Scene]:
    """Yield the first of the user's pictures with their truth, around the middle or the hole."""
    scale = restorer.scale
    for here, there in paired_pictures(images, truths)[:MOST_PICTURES]:
        picture, truth = read_picture(here), read_picture(there).pixels
        others, _ = companions.read(here, picture.size)
        rows, columns = shown = _middle(picture.size, side, others.get("mask"))
        if "mask" in others:
            others["mask"] = others["mask"][shown]
        if "reference" in others:
            reference = others["reference"]
            others["reference"] = reference[_middle(reference.shape, side)]
        large = tuple(
            slice(extent.start * scale, extent.stop * scale) for extent in (rows, columns)
        )
        yield Scene(here.name, picture.pixels[shown], truth[large], others)


def _middle(size: tuple[int, ...], side: int, mask: Any = None) -> tuple[slice, slice]:
    """Return rows and columns of the middle of a picture, or of what a mask says to fill."""
    centre = [length / 2 for length in size[:2]]
    if mask is not None and mask.any():
        centre = [float(places.mean()) for places in np.nonzero(mask)]
    extents = []
    for length, middle in zip(size, centre, strict=False):
        shown = min(side, length)
        start = int(np.clip(middle - shown / 2, 0, length - shown))
        extents.append(slice(start, start + shown))
    return extents[0], extents[1]
