"""The pictures that an export is measured on: the shipped photographs or the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..models.facts import Facts
from ..plugins.errors import NystraError
from ..runtime.images import read_picture

Pixels: TypeAlias = npt.NDArray[np.float32]

_LARGEST_CALIBRATION_SIDE = 256
_SUFFIXES = {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp"}


def photographs() -> dict[str, Path]:
    """Return the shipped photographs by name."""
    folder = Path(__file__).parent / "photographs"
    return {path.stem: path for path in sorted(folder.glob("*.png"))}


def validation_shapes(facts: Facts, static: tuple[int, ...] | None) -> list[tuple[int, int]]:
    """Return the sizes (height, width) a file is validated at.

    One is a multiple of the window, none but the first is square, one is smaller than the
    window in a direction.
    """
    if static is not None:
        return [(static[2], static[3])] * 3
    if facts.fixed_size is not None:
        return [facts.fixed_size] * 3
    rows, columns = facts.window
    return [
        (2 * rows, 2 * columns),
        (2 * rows + 3, columns + columns // 2 - 1),
        (rows // 2 + 1, 2 * columns + columns // 2),
    ]


def validation_images(facts: Facts, static: tuple[int, ...] | None) -> list[Pixels]:
    """Return one image (1, C, H, W), 0..1 in steps of 1/255, for each validation size."""
    sources = [_load(path, facts.input_channels) for path in photographs().values()]
    return [
        _crop(sources[index % len(sources)], height, width)
        for index, (height, width) in enumerate(validation_shapes(facts, static))
    ]


def calibration_images(
    facts: Facts, folder: Path | None, static: tuple[int, ...] | None
) -> dict[str, Pixels]:
    """Return the pictures a plan is judged on, by name, each (1, C, H, W), 0..1.

    Args:
        facts: of the network.
        folder: the user's pictures (the middle 256x256 of each), or None for the shipped ones.
        static: the only input shape, or None.

    Raises:
        NystraError: the folder is missing or holds no pictures.
    """
    if folder is None:
        paths = list(photographs().values())
        side = max(64, 2 * max(facts.window))
    else:
        if not folder.is_dir():
            raise NystraError(f"--calibrate {folder} is not a folder")
        paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
        if not paths:
            raise NystraError(f"--calibrate {folder} holds no pictures ({', '.join(_SUFFIXES)})")
        side = _LARGEST_CALIBRATION_SIDE
    images = {}
    for path in paths:
        image = _load(path, facts.input_channels)
        size = min(side, image.shape[2]), min(side, image.shape[3])
        if static is not None:
            size = static[2], static[3]
        elif facts.fixed_size is not None:
            size = facts.fixed_size
        images[path.stem] = _crop(image, *size)
    return images


def _load(path: Path, channels: int) -> Pixels:
    pixels = read_picture(path).pixels
    if channels == 1 and pixels.shape[2] != 1:
        pixels = pixels.mean(axis=2, keepdims=True)
    elif pixels.shape[2] != channels:
        pixels = np.repeat(pixels[:, :, :1], channels, axis=2)
    image = np.round(pixels * 255.0).transpose(2, 0, 1)[None] / 255.0
    return np.ascontiguousarray(image, dtype=np.float32)


def _crop(image: Pixels, height: int, width: int) -> Pixels:
    """Return the middle of an image, mirrored where it is smaller."""
    pads = [
        (0, 0),
        (0, 0),
        (0, max(0, height - image.shape[2])),
        (0, max(0, width - image.shape[3])),
    ]
    if any(after for _, after in pads):
        image = np.pad(image, pads, mode="symmetric")
    top, left = (image.shape[2] - height) // 2, (image.shape[3] - width) // 2
    return np.ascontiguousarray(image[:, :, top : top + height, left : left + width])
