"""A contact sheet: pictures side by side with captions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...plugins.errors import NystraError
from ..files.writing import atomic_path
from .images import picture_format
from .picture import quantise

Array = npt.NDArray[Any]

_GAP = 8
_CAPTION = 24
_LONGEST_SIDE = 60_000


def magnified_difference(
    got: Array, expected: Array, factor: float | None = None
) -> tuple[npt.NDArray[np.float32], float]:
    """Return the absolute difference of two pictures, magnified for the eye.

    Args:
        got: (H, W, C) in 0..1.
        expected: The same shape.
        factor: By how much; None takes the power of ten that brings the largest difference
            nearest below 1, from 1 to 1e6.

    Returns:
        (H, W, C) clipped to 0..1, and the factor.

    Raises:
        NystraError: The shapes differ.
    """
    if got.shape != expected.shape:
        raise NystraError(f"got a picture of shape {got.shape}, expected {expected.shape}")
    difference = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    if factor is None:
        largest = float(difference.max(initial=0.0))
        factor = 1.0
        while 0.0 < largest * factor <= 0.1 and factor < 1e6:
            factor *= 10.0
    return np.clip(difference * factor, 0.0, 1.0).astype(np.float32), factor


def comparison_sheet(columns: Sequence[tuple[str, Array]], path: str | os.PathLike[str]) -> None:
    """Write pictures side by side, each under its title, all as high as the highest.

    Args:
        columns: (title, picture); pictures are (H, W, 1 or 3) in 0..1; smaller ones are
            enlarged by repeating pixels, so that a low-resolution input shows its pixels.
        path: The sheet; a file that is there is replaced.

    Raises:
        NystraError: There are no columns, they are too large, or the file cannot be written.
    """
    from PIL import Image, ImageDraw, ImageFont

    kind = picture_format(path)
    if not columns:
        raise NystraError("got no pictures for the sheet, expected one or more")
    height = max(picture.shape[0] for _, picture in columns)
    tiles = []
    for title, picture in columns:
        colour = np.repeat(picture, 3, axis=2) if picture.shape[2] == 1 else picture
        image = Image.fromarray(quantise(np.nan_to_num(colour), 8))
        wide = max(round(image.width * height / image.height), 1)
        tiles.append((title, image.resize((wide, height), Image.Resampling.NEAREST)))
    font = ImageFont.load_default()
    widths = [max(image.width, int(font.getlength(title)) + 1) for title, image in tiles]
    size = (sum(widths) + _GAP * (len(tiles) + 1), height + _CAPTION + _GAP)
    if max(size) > _LONGEST_SIDE:
        raise NystraError(f"the sheet would be {size[0]}x{size[1]} pixels: take smaller pictures")
    sheet = Image.new("RGB", size, (255, 255, 255))
    draw = ImageDraw.Draw(sheet)
    left = _GAP
    for (title, image), wide in zip(tiles, widths, strict=True):
        draw.text((left, _CAPTION // 4), title, fill=(0, 0, 0), font=font)
        sheet.paste(image, (left, _CAPTION))
        left += wide + _GAP
    with atomic_path(path) as temporary:
        sheet.save(temporary, format=kind.upper())
