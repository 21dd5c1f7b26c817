"""The images of a sheet: the shipped photographs, or the middle of the user's images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.arrays import Array
from ...core.ports.port import Port
from ...runtime.images.images import read_image
from ...runtime.images.pairs import pair_images
from ...runtime.tasks.restoration.auxiliary_roles import AUXILIARY_ROLES, AuxiliaryInputs, stand_in
from ...runtime.tasks.restoration.restorer import Restorer
from ..load.images import photographs

Pixels = npt.NDArray[np.float32]

MAX_IMAGES = 6
_INPUT_SIDE = 256
_OUTPUT_SIDE = 512
_QUADRATIC_SIDE = 128


@dataclass(frozen=True)
class Scene:
    """The content of a row of the sheet.

    Attributes:
        name: Name of the image.
        pixels: (H, W, C) in 0..1, the input of the model.
        truth: (H * scale, W * scale, C') in 0..1, the expected output, or None.
        auxiliary: The further inputs, as a `Restorer` takes them.
        ports: The ports of the further inputs.
    """

    name: str
    pixels: Pixels
    truth: Pixels | None = None
    auxiliary: dict[str, Pixels] = field(default_factory=dict)
    ports: tuple[Port, ...] = ()


def scene_side(restorer: Restorer, *, small: bool) -> int:
    """Return the side of the shown part of an image, in input pixels.

    Args:
        restorer: The model file.
        small: A run is included whose memory and time grow with the square of the pixels.
    """
    return min(_QUADRATIC_SIDE if small else _INPUT_SIDE, _OUTPUT_SIDE // restorer.scale)


def find_shipped_scenes(restorer: Restorer, side: int) -> Iterator[Scene]:
    """Yield the shipped photographs: holes in the middle, the mirrored image as reference.

    A photograph is the ground truth if the model keeps the size: of the hole or of the colors.
    """
    for name, path in photographs().items():
        pixels = read_image(path).pixels
        pixels = pixels[_middle(pixels.shape, side)]
        auxiliary = {port.name: stand_in(port, pixels) for port in restorer.auxiliary}
        fits = any(port.has_sides for port in restorer.auxiliary) and restorer.scale == 1
        yield Scene(name, pixels, pixels if fits else None, auxiliary, restorer.auxiliary)


def user_scenes(
    images: Path,
    truths: Path,
    paths: Mapping[str, Path | Array],
    restorer: Restorer,
    side: int,
) -> Iterator[Scene]:
    """Yield the first of the user's images with their truth, around the middle or the hole."""
    scale = restorer.scale
    auxiliary = AuxiliaryInputs.match(restorer.auxiliary, paths)
    for source, target in pair_images(images, truths)[:MAX_IMAGES]:
        image = read_image(source)
        truth = read_image(target).pixels
        arrays, _ = auxiliary.read(source, image.size)
        masks = [port.name for port in restorer.auxiliary if port.role == "mask"]
        holes = [arrays[name] for name in masks]
        rows, columns = place = _middle(image.size, side, *holes[:1])
        for port in restorer.auxiliary:
            if not port.has_sides:
                continue
            pixels = arrays[port.name]
            same = AUXILIARY_ROLES[port.role].same_size
            arrays[port.name] = pixels[place if same else _middle(pixels.shape, side)]
        large = tuple(
            slice(extent.start * scale, extent.stop * scale) for extent in (rows, columns)
        )
        pixels = image.pixels[place]
        yield Scene(source.name, pixels, truth[large], arrays, restorer.auxiliary)


def _middle(size: tuple[int, ...], side: int, mask: Any = None) -> tuple[slice, slice]:
    center = [length / 2 for length in size[:2]]
    if mask is not None and mask.any():
        places_by_axis = np.nonzero(mask)[:2]
        center = [float(places.mean()) for places in places_by_axis]
    extents = []
    for length, middle in zip(size, center, strict=False):
        length_shown = min(side, length)
        first = middle - length_shown / 2
        start = int(np.clip(first, 0, length - length_shown))
        extents.append(slice(start, start + length_shown))
    return extents[0], extents[1]
