"""Reads the size of an image from its header."""

from __future__ import annotations

import os

from ...core.files.reading import open_regular
from .images import open_image


def read_image_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return height and width of an image as `read_image` would return it.

    Raises:
        NystraError: As `read_image`; damage after the header is not detected.
    """
    with open_regular(path, "the image") as stream, open_image(stream, str(path)) as file:
        return file.upright_size
