"""A contact sheet: rows of images side by side, each under its caption."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.arrays import Array
from ...core.errors import NystraError
from ...core.files.writing import atomic_path
from ...core.plain_text import printable
from .image_data import quantize
from .images import image_format

_GAP = 8
_CAPTION = 24
_LETTERS = 14
_LONGEST_SIDE = 60_000
_FACTORS = [step * 10.0**power for power in range(6) for step in (1.0, 2.0, 5.0)]
_BRIGHT = 0.75


def magnify_difference(got: Array, expected: Array, factor: float) -> npt.NDArray[np.float32]:
    """Return the absolute difference of two images, magnified for the eye.

    Args:
        got: (H, W, C) in 0..1.
        expected: The same shape.
        factor: The factor; see `readable_factor`.

    Returns:
        (H, W, C) clipped to 0..1.

    Raises:
        NystraError: The shapes differ.
    """
    if got.shape != expected.shape:
        raise NystraError(f"got an image of shape {got.shape}, expected {expected.shape}")
    difference = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    return np.clip(difference * factor, 0.0, 1.0).astype(np.float32)


def readable_factor(differences: Sequence[Array]) -> float:
    """Return a factor that makes differences visible.

    Args:
        differences: Not negative, of any shapes.

    Returns:
        The largest of 1, 2, 5, 10, ... 500,000 that leaves 99 of 100 values below 0.75.
    """
    values = np.concatenate([difference.ravel() for difference in differences])
    size = float(np.percentile(values, 99.0)) or float(values.max())
    return max([f for f in _FACTORS if 0.0 < size * f < _BRIGHT], default=1.0)


def comparison_sheet(
    rows: Sequence[Sequence[tuple[str, Array]]],
    path: str | os.PathLike[str],
    heading: Sequence[str] = (),
) -> None:
    """Write rows of images, each under its caption; images of a row have the same height.

    Args:
        rows: (caption, image) from left to right, as many in every row; images are
            (H, W, 1 or 3) in 0..1; smaller ones are enlarged by repeating pixels, so that a
            low-resolution input shows its pixels.
        path: The sheet; an existing file is replaced.
        heading: Lines above all rows.

    Raises:
        NystraError: There are no images, they are too large, or the file cannot be written.
    """
    from PIL import Image, ImageDraw, ImageFont, features

    kind = image_format(path)
    if not rows or not all(rows):
        raise NystraError("got no images for the sheet, expected one or more in every row")
    font: Any = ImageFont.load_default(_LETTERS if features.check("freetype2") else None)
    drawn = []
    for cells in rows:
        images = [(printable(caption), _enlarge(cells, image)) for caption, image in cells]
        drawn.append(images)
    heading = [printable(line) for line in heading]
    columns = []
    for column in zip(*drawn, strict=True):
        captions = [int(font.getlength(caption)) + 1 for caption, _ in column]
        columns.append(max(*captions, *(image.width for _, image in column)))
    heights = [_CAPTION + cells[0][1].height + _GAP for cells in drawn]
    words = max((int(font.getlength(line)) + 1 for line in heading), default=0)
    wide = max(sum(columns) + _GAP * (len(columns) + 1), words + 2 * _GAP)
    size = (wide, _CAPTION * len(heading) + sum(heights))
    if max(size) > _LONGEST_SIDE:
        raise NystraError(f"the sheet would be {size[0]}x{size[1]} pixels: use smaller images")
    sheet = Image.new("RGB", size, (255, 255, 255))
    draw = ImageDraw.Draw(sheet)
    for place, line in enumerate(heading):
        draw.text((_GAP, place * _CAPTION + _CAPTION // 6), line, fill=(0, 0, 0), font=font)
    top = _CAPTION * len(heading)
    for cells, high in zip(drawn, heights, strict=True):
        left = _GAP
        for (caption, image), column in zip(cells, columns, strict=True):
            draw.text((left, top + _CAPTION // 6), caption, fill=(0, 0, 0), font=font)
            sheet.paste(image, (left, top + _CAPTION))
            left += column + _GAP
        top += high
    with atomic_path(path) as temporary:
        sheet.save(temporary, format=kind.upper())


def _enlarge(cells: Sequence[tuple[str, Array]], restored: Array) -> Any:
    from PIL import Image

    height = max(other.shape[0] for _, other in cells)
    color = np.repeat(restored, 3, axis=2) if restored.shape[2] == 1 else restored
    image = Image.fromarray(quantize(np.nan_to_num(color), 8))
    wide = max(round(image.width * height / image.height), 1)
    return image.resize((wide, height), Image.Resampling.NEAREST)
