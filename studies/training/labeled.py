"""Images with one class each: a folder of folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nystra.core.errors import NystraError

_SUFFIXES = {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp"}


@dataclass(frozen=True)
class Labeled(Sequence[tuple[NDArray[np.uint8], int]]):
    """Images of one size and their classes.

    Attributes:
        pixels: uint8 (N, H, W, 3), RGB.
        classes: int64 (N), places in `names`.
        names: Of the classes.
    """

    pixels: NDArray[np.uint8]
    classes: NDArray[np.int64]
    names: tuple[str, ...]

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.pixels)

    def __getitem__(self, place):  # type: ignore[no-untyped-def]
        """Return an image and its class."""
        return self.pixels[place], int(self.classes[place])


def read_labeled(folder: Path, side: int) -> Labeled:
    """Read the images of a folder with a sub-folder for each class, in the order of names.

    Raises:
        NystraError: No such folder, no classes in it, an unreadable image, or one of another
            size than ``side`` x ``side``.
    """
    if not folder.is_dir():
        raise NystraError(f"{folder} is not a folder: --data takes one with train/ and test/ in it")
    homes = sorted(path for path in folder.iterdir() if path.is_dir())
    pixels: list[NDArray[np.uint8]] = []
    classes: list[int] = []
    for number, home in enumerate(homes):
        files = sorted(file for file in home.iterdir() if file.suffix.lower() in _SUFFIXES)
        pixels += [_read(file, side) for file in files]
        classes += [number] * len(files)
    if not pixels:
        raise NystraError(f"{folder} holds no images: put a folder of them there for each class")
    names = tuple(home.name for home in homes)
    return Labeled(np.stack(pixels), np.array(classes, np.int64), names)


def _read(file: Path, side: int) -> NDArray[np.uint8]:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            pixels: NDArray[np.uint8] = np.array(image.convert("RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise NystraError(f"{file} cannot be read as an image: {error}") from error
    if pixels.shape[:2] != (side, side):
        raise NystraError(
            f"{file} is {pixels.shape[1]}x{pixels.shape[0]}: every image must be {side}x{side} "
            "pixels, as --side says"
        )
    return pixels
