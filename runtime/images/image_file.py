"""An open image file: its header, and its pixels by the same header."""

from __future__ import annotations

from typing import Protocol

from .image_data import EXCHANGING, ImageData


class ImageFile(Protocol):
    """An image file, open.

    Attributes:
        format: As Pillow names it, such as ``PNG``.
        size: Height and width as stored, before the orientation is applied.
    """

    format: str
    size: tuple[int, int]

    def orientation(self) -> int:
        """Return the EXIF orientation (tag 274, 1 to 8)."""

    def decode(self) -> ImageData:
        """Return the image with its orientation applied.

        Raises:
            Exception: Whatever the codec raises of a damaged file.
        """


def upright_size(file: ImageFile) -> tuple[int, int]:
    """Return height and width of an open file's image with its orientation applied."""
    height, width = file.size
    return (width, height) if file.orientation() in EXCHANGING else (height, width)
