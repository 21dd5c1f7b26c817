"""The images that an export is measured on: the shipped photographs or the user's own.

The role of an input determines its content: the photograph, the mirrored photograph as reference, a
hole in the middle as mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ...core.errors import NystraError
from ...core.ports.examples import batch_sizes, example_array, own_sizes
from ...core.ports.port import CONDITION, Port, Size
from ...core.ports.preprocessing import Preprocessing
from ...models.facts import Facts
from ...runtime.images.image_data import resize_plane
from ...runtime.images.images import READ_SUFFIXES, read_image

Pixels: TypeAlias = npt.NDArray[np.float32]
Feeds: TypeAlias = dict[str, Pixels]

_LARGE_SIDE = 48
"""Least side of a window, or size multiple, whose validation images are smaller."""

_LARGEST_CALIBRATION_SIDE = 256

_REDUCED_SCALE = 3
"""Least scale of a network for which the shipped photographs are reduced."""


@dataclass(frozen=True)
class Images:
    """The images on which a plan is validated, and chosen with ``--attn auto``.

    Attributes:
        samples: Inputs of the network by name of the image, or of a crop of it.
        held_out: Names of the samples that are used to verify a plan only.
        held_out_images: The images of these samples.
        coarse: The network is too slow to try all candidates.
    """

    samples: dict[str, Feeds]
    held_out: tuple[str, ...] = ()
    held_out_images: tuple[str, ...] = ()
    coarse: bool = False

    @property
    def seen(self) -> dict[str, Feeds]:
        """The samples that are not held out."""
        samples = self.samples.items()
        return {name: feeds for name, feeds in samples if name not in self.held_out}


def photographs() -> dict[str, Path]:
    """Return the shipped photographs by name."""
    folder = Path(__file__).parents[1] / "photographs"
    return {path.stem: path for path in sorted(folder.glob("*.png"))}


def validation_sizes(facts: Facts) -> list[Size]:
    """Return the sizes for the validation of a file; for a file of one size several batches.

    One is a multiple of the window (or, without one, of the size multiple), none but the first
    is square, one is smaller than the window in a direction. Images of large windows or multiples
    have two of them, since the scores of a window grow with the square of its tokens.
    """
    if facts.sides is not None:
        return batch_sizes(facts.inputs, facts.sides)
    cell, minimum = facts.cell, facts.size_minimum
    one, two = max(minimum, cell), max(minimum, 2 * cell)
    sizes = [
        (two, two),
        (two + 3, max(minimum, cell + cell // 2 - 1)),
        (max(minimum, cell // 2 + 1), two + cell // 2),
    ]
    largest = max((*(facts.window or ()), facts.size_multiple))
    if largest >= _LARGE_SIDE:
        sizes = [
            (two, one),
            (one + 3, max(minimum, cell - 5)),
            (max(minimum, cell // 2 + 1), one + cell // 2),
        ]
    return [facts.size(rows, columns) for rows, columns in sizes]


def validation_feeds(facts: Facts) -> list[Feeds]:
    """Return the inputs by name for each validation size, with the batch size of the network.

    An image is in 0..1 in steps of 1/255.
    """
    sources = list(photographs().values())
    return [
        feeds_of(facts, read_image(sources[index % len(sources)]).pixels, size)
        for index, size in enumerate(validation_sizes(facts))
    ]


def calibration_feeds(
    facts: Facts, folder: Path | None, side: int | None = None
) -> dict[str, Feeds]:
    """Return the inputs that a plan is validated on: name of an image -> as `validation_feeds`.

    Args:
        facts: Facts of the network.
        folder: The user's images (the middle 256x256 of each), or None for the shipped ones;
            if the facts have a preprocessing, each whole image is used.
        side: Side of the crop of an image; None: as above.

    Raises:
        NystraError: The folder is missing or holds no images.
    """
    if side is None:
        side = sample_side(facts) if folder is None else _LARGEST_CALIBRATION_SIDE
    samples = {}
    for path in calibration_images(folder):
        pixels = read_sample(facts, path, folder)
        height, width = pixels.shape[:2]
        rows, columns = min(side, height), min(side, width)
        size = facts.size(rows, columns)
        samples[path.stem] = (
            feeds_of(facts, pixels, size)
            if facts.preprocessing is None
            else _prepare(facts, facts.preprocessing, pixels)
        )
    return samples


def calibration_images(folder: Path | None) -> list[Path]:
    """Return the user's images, or the shipped photographs if no folder is given.

    Raises:
        NystraError: The folder is missing or holds no images.
    """
    if folder is None:
        return list(photographs().values())
    if not folder.is_dir():
        raise NystraError(f"`calibrate` {folder} is not a folder")
    files = sorted(folder.iterdir())
    paths = [path for path in files if path.suffix.lower() in READ_SUFFIXES]
    if not paths:
        raise NystraError(f"`calibrate` {folder} holds no images ({', '.join(READ_SUFFIXES)})")
    return paths


def read_sample(facts: Facts, path: Path, folder: Path | None) -> Pixels:
    """Return an image of the user's folder, or a shipped photograph, like inputs of the network.

    An image to be enlarged four times is small because it was reduced, and sharper per pixel than
    the photographs, so that attention in it is too: for such networks they are reduced by two,
    unless they would be smaller than a sample.

    Returns:
        Pixels (H, W, C) in 0..1.
    """
    pixels = read_image(path).pixels
    height, width = (side // 2 for side in pixels.shape[:2])
    if folder or facts.scale < _REDUCED_SCALE or min(height, width) < sample_side(facts):
        return pixels
    planes = [resize_plane(plane, (height, width)) for plane in np.moveaxis(pixels, 2, 0)]
    return np.stack(planes, axis=2)


def sample_side(facts: Facts) -> int:
    """Return the side of the crop of a photograph: two cells or more."""
    return facts.round_up(max(64, 2 * facts.cell))


def feeds_of(facts: Facts, pixels: Pixels, size: Size) -> Feeds:
    """Return the inputs by name for the middle of an image (H, W, C) in 0..1."""
    sizes = own_sizes(facts.inputs, size)
    feeds = {}
    for port in facts.inputs:
        feeds[port.name] = _MAKERS[port.role](port, pixels, sizes)
    return feeds


def _prepare(facts: Facts, preprocessing: Preprocessing, pixels: Pixels) -> Feeds:
    from ...runtime.tasks.classification.classifier import prepare

    port = facts.inputs[0]
    image = prepare(pixels, preprocessing, port.channels or 3)
    if port.sides is not None:
        image = _crop(image, *port.sides.values())
    batch = port.lengths.get("batch", 1)
    return {port.name: np.repeat(image, batch, axis=0)}


def _photograph(port: Port, pixels: Pixels, size: Size) -> Pixels:
    planes = _planes(pixels, port.channels or 3)
    return _crop_batch(planes, port.shape(size))


def _mirror(port: Port, pixels: Pixels, size: Size) -> Pixels:
    image = _planes(pixels, port.channels or 3)
    mirrored = image[:, :, :, ::-1]
    return _crop_batch(mirrored, port.shape(size))


def _example(port: Port, _pixels: Pixels, size: Size) -> Pixels:
    return example_array(port, size)


def _frames(port: Port, pixels: Pixels, size: Size) -> Pixels:
    batch, frames, *shape = port.shape(size)
    image = _planes(pixels, port.channels or 3)
    still = _crop_batch(image, (batch, *shape))
    rolled = [np.roll(still, index, axis=-1) for index in range(frames)]
    return np.stack(rolled, axis=1)


_MAKERS: dict[str, Callable[[Port, Pixels, Size], Pixels]] = {
    "image": _photograph,
    "mask": _example,
    "reference": _mirror,
    CONDITION: _example,
    "frames": _frames,
}


def _crop_batch(image: Pixels, shape: Sequence[int]) -> Pixels:
    """Return a batch of crops of an image, each moved by one pixel more."""
    batch, _, height, width = shape
    middle = _crop(image, height, width)
    rolled = [np.roll(middle, index, axis=-1) for index in range(batch)]
    return np.concatenate(rolled)


def _planes(pixels: Pixels, channels: int) -> Pixels:
    """Return an image as (1, channels, H, W), in steps of 1/255."""
    if channels == 1 and pixels.shape[2] != 1:
        pixels = pixels.mean(axis=2, keepdims=True)
    elif pixels.shape[2] != channels:
        first = pixels[:, :, :1]
        pixels = np.repeat(first, channels, axis=2)
    levels = np.round(pixels * 255.0) / 255.0
    image = levels.transpose(2, 0, 1)[None]
    return np.ascontiguousarray(image, dtype=np.float32)


def _crop(image: Pixels, height: int, width: int) -> Pixels:
    """Return the middle of an image, which is mirrored if it is smaller."""
    pads = [
        (0, 0),
        (0, 0),
        (0, max(0, height - image.shape[2])),
        (0, max(0, width - image.shape[3])),
    ]
    if any(after for _, after in pads):
        image = np.pad(image, pads, mode="symmetric")
    top = (image.shape[2] - height) // 2
    left = (image.shape[3] - width) // 2
    rows = slice(top, top + height)
    columns = slice(left, left + width)
    return np.ascontiguousarray(image[:, :, rows, columns])
