"""The pictures that an export is measured on: the shipped photographs or the user's own.

A network that takes more than a picture gets a hole in the middle as mask, and the mirrored
photograph as reference.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ..models.facts import Facts
from ..plugins.errors import NystraError
from ..plugins.ports.examples import example_array
from ..plugins.ports.port import picture_size
from ..runtime.pictures.images import read_picture

Pixels: TypeAlias = npt.NDArray[np.float32]
Feeds: TypeAlias = dict[str, Pixels]

_LARGEST_CALIBRATION_SIDE = 256
_SUFFIXES = {".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".bmp"}


def photographs() -> dict[str, Path]:
    """Return the shipped photographs by name."""
    folder = Path(__file__).parent / "photographs"
    return {path.stem: path for path in sorted(folder.glob("*.png"))}


def validation_shapes(facts: Facts, static: tuple[int, ...] | None) -> list[tuple[int, int]]:
    """Return the sizes (height, width) a file is validated at.

    One is a multiple of the window (or, without one, of the size multiple), none but the first
    is square, one is smaller than the window in a direction.
    """
    if static is not None:
        return [(static[2], static[3])] * 3
    if facts.fixed_size is not None:
        return [facts.fixed_size] * 3
    rows, columns = facts.cell
    return [
        (2 * rows, 2 * columns),
        (2 * rows + 3, columns + columns // 2 - 1),
        (rows // 2 + 1, 2 * columns + columns // 2),
    ]


def validation_feeds(facts: Facts, static: tuple[int, ...] | None) -> list[Feeds]:
    """Return the inputs by name, ``input`` first, for each validation size.

    The picture is (1, C, H, W), 0..1 in steps of 1/255; so is everything else.
    """
    sources = list(photographs().values())
    return [
        _feeds(facts, sources[index % len(sources)], size, fixed=static is not None)
        for index, size in enumerate(validation_shapes(facts, static))
    ]


def judged_feeds(facts: Facts, static: tuple[int, ...] | None) -> list[Feeds]:
    """Return the inputs by name at each validation size, in the batch that a file takes."""
    batch = 1 if static is None else static[0]
    return [
        {name: np.repeat(array, batch, axis=0) for name, array in feeds.items()}
        for feeds in validation_feeds(facts, static)
    ]


def calibration_feeds(
    facts: Facts, folder: Path | None, static: tuple[int, ...] | None
) -> dict[str, Feeds]:
    """Return what a plan is judged on: name of a picture to inputs as ``validation_feeds`` gives.

    Args:
        facts: of the network.
        folder: the user's pictures (the middle 256x256 of each), or None for the shipped ones.
        static: the only input shape, or None.

    Raises:
        NystraError: the folder is missing or holds no pictures.
    """
    if folder is None:
        paths = list(photographs().values())
        side = max(64, 2 * max(facts.cell))
    else:
        if not folder.is_dir():
            raise NystraError(f"--calibrate {folder} is not a folder")
        paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
        if not paths:
            raise NystraError(f"--calibrate {folder} holds no pictures ({', '.join(_SUFFIXES)})")
        side = _LARGEST_CALIBRATION_SIDE
    samples = {}
    for path in paths:
        height, width = read_picture(path).size
        size = min(side, height), min(side, width)
        if static is not None:
            size = static[2], static[3]
        elif facts.fixed_size is not None:
            size = facts.fixed_size
        samples[path.stem] = _feeds(facts, path, size, fixed=static is not None)
    return samples


def _feeds(facts: Facts, path: Path, size: tuple[int, int], *, fixed: bool) -> Feeds:
    """Return the inputs for the middle of a photograph; ``fixed`` keeps all at one size."""
    height, width = size
    feeds = {"input": _crop(_load(path, facts.input_channels), height, width)}
    for port in facts.inputs[1:]:
        if port.role == "mask":
            feeds[port.name] = example_array(port, picture_size(height, width))
        else:
            other = (height + 3, max(1, width - 2)) if port.own_size and not fixed else size
            picture = _load(path, port.channels or 3)[:, :, :, ::-1]
            feeds[port.name] = _crop(picture, *other)
    return feeds


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
