"""Which images are not held as a whole."""

from __future__ import annotations

from pathlib import Path

from ....core.files.reading import regular_file
from ...images.images import STREAM, image_format, read_image_size
from .restore import DISCOURAGED
from .restorer import Restorer

LARGE = 1 << 30
"""Bytes of an image and its result in float32 from which on they are not held."""

LEAST_ROWS = 128
"""Least number of rows that are held of a large image."""

_SMALL_FILE = 64 << 10
"""Bytes of a file that is not looked into, so that small ones are opened once."""
_FORMATS = ("PNG", "JPEG", "TIFF")


def is_large(restorer: Restorer, here: Path, there: Path) -> bool:
    """Return whether an image is large by its header, and may be restored row by row.

    It may not if the model needs the whole image (means over it, masks), and into WebP.

    Raises:
        NystraError: The file is no image, or damaged.
    """
    held = restorer.whole or restorer.auxiliary or restorer.tiling == DISCOURAGED
    if held or STREAM in (here, there) or image_format(there) not in _FORMATS:
        return False
    if regular_file(here, "the image").stat().st_size <= _SMALL_FILE:
        return False
    height, width = read_image_size(here)
    numbers = 3 + restorer.output_channels * restorer.scale**2
    least = max(restorer.size_minimum, LEAST_ROWS)
    return min(height, width) >= least and 4 * height * width * numbers > LARGE
