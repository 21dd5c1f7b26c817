"""The size of a picture, read off its header."""

from __future__ import annotations

import os
import warnings
from typing import Any

from ...core.files.reading import open_regular
from .images import read_picture

_ORIENTATION, _TURNED = 274, (5, 6, 7, 8)


def read_picture_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return height and width of a picture as `read_picture` would return it.

    Pixels are decoded only where the header alone is not understood.

    Raises:
        NystraError: As `read_picture`; damage behind the header goes unseen.
    """
    from PIL import Image

    with open_regular(path, "the picture") as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(stream) as image:
                return _upright(image)
        except Exception:  # what it is and whether it is damaged, the reader says better
            return read_picture(path).size


def _upright(image: Any) -> tuple[int, int]:
    width, height = image.size
    turned = image.getexif().get(_ORIENTATION, 1) in _TURNED
    return (width, height) if turned else (height, width)
