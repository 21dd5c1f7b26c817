"""Crops of photographs with holes: the training data of the inpainting generator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from scipy.ndimage import distance_transform_edt

ImageData = npt.NDArray[np.uint8]
Plane = npt.NDArray[np.float32]

_RIM = 8  # pixels of a crop that a rectangle leaves at every side
_SIDES = (24, 56)  # of a rectangle, in pixels
SMALLEST = 2 * _RIM + _SIDES[1]
"""Smallest side of a crop, in pixels."""

_STROKES = (2, 5)
_WIDTHS = (6, 15)


def photographs(folder: Path) -> list[ImageData]:
    """Return the images (H, W, 3) of a folder in the order of their names."""
    paths = sorted([*folder.glob("*.jpg"), *folder.glob("*.png")])
    return [np.asarray(Image.open(path).convert("RGB")) for path in paths]


def rectangle(side: int, random: np.random.Generator) -> Plane:
    """Return a mask (side, side), 1 in a rectangle of 24 to 55 pixels a side."""
    mask = np.zeros((side, side), np.float32)
    height, width = random.integers(*_SIDES, 2)
    top = random.integers(_RIM, side - _RIM - height + 1)
    left = random.integers(_RIM, side - _RIM - width + 1)
    mask[top : top + height, left : left + width] = 1.0
    return mask


def strokes(side: int, random: np.random.Generator) -> Plane:
    """Return a mask (side, side), 1 along a few thick curved lines."""
    image = Image.new("L", (side, side))
    draw = ImageDraw.Draw(image)
    for _ in range(random.integers(*_STROKES)):
        place, angle = random.uniform(_RIM, side - _RIM, 2), random.uniform(0, 2 * np.pi)
        width = int(random.integers(*_WIDTHS))
        for _ in range(random.integers(2, 6)):
            angle += random.uniform(-1.2, 1.2)
            step = random.uniform(8, 24) * np.array([np.cos(angle), np.sin(angle)])
            after = np.clip(place + step, 0, side - 1)
            draw.line([tuple(place), tuple(after)], 255, width)
            x, y = after
            draw.ellipse([x - width / 2, y - width / 2, x + width / 2, y + width / 2], 255)
            place = after
    return (np.asarray(image) > 0).astype(np.float32)


def discount(mask: Plane, base: float) -> Plane:
    """Return base to the power of the distance to the nearest known pixel, 0 outside the hole.

    Source: Yu et al., 2018, section 3.2: what lies deep in a hole is less determined.
    """
    distance = distance_transform_edt(mask) if mask.min() == 0 else np.full(mask.shape, 64.0)
    return (mask * base**distance).astype(np.float32)


def draw_crops(
    images: list[ImageData], side: int, batch: int, seed: int, step: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Draw the crops and holes of one step, independently of other steps.

    Args:
        images: What to draw from, every side at least ``side``.
        side: Of a crop in pixels, at least `SMALLEST`.
        batch: Number of crops B.
        seed: Of the whole training.
        step: Number of the step, from 0.

    Returns:
        Crops (B, 3, side, side) in -1..1, turned and mirrored at random, and masks
        (B, 1, side, side): by turns a rectangle and strokes.
    """
    random = np.random.default_rng([seed, step])
    crops, masks = [], []
    for number in range(batch):
        image = images[random.integers(len(images))]
        top = random.integers(image.shape[0] - side + 1)
        left = random.integers(image.shape[1] - side + 1)
        crop = np.rot90(image[top : top + side, left : left + side], random.integers(4))
        crop = crop[:, ::-1] if random.integers(2) else crop
        crops.append(crop.transpose(2, 0, 1).astype(np.float32) / 127.5 - 1.0)
        make = rectangle if number % 2 == 0 else strokes
        masks.append(make(side, random)[None])
    return np.stack(crops), np.stack(masks)
