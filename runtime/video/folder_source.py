"""The frames of a folder, in the order of the numbers in their names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

from ...core.errors import NystraError
from ..images.image_data import ImageData
from ..images.images import read_image, read_image_size
from ..images.pairs import list_folder
from .clip import Clip, Color, Frame
from .file_source import default_matrix


class FrameFolder:
    """Images of one size.

    Attributes:
        path: The folder.
        files: The images.
        clip: Their properties as a video.
    """

    def __init__(
        self, path: Path, fps: Fraction | None = None, files: list[Path] | None = None
    ) -> None:
        """List the images and look at the header of each.

        Args:
            path: The folder.
            fps: Frames per second, or None if not needed.
            files: The images of the folder that are frames; None: all.

        Raises:
            NystraError: There are none, they have several sizes, or one cannot be read.
        """
        self.path = path
        self.files = sorted(files or list_folder(path), key=lambda file: frame_order(file.name))
        size = read_image_size(self.files[0])
        for file in self.files[1:]:
            self._check_size(file, read_image_size(file), size)
        first = read_image(self.files[0])
        alpha, deep = first.alpha is not None, first.bits > 8
        pixel_format = f"yuv{'a' if alpha else ''}420p{'10le' if deep else ''}"
        matrix = default_matrix(size[0])
        color = Color(pixel_format, 10 if deep else 8, alpha, matrix, False, matrix, matrix)
        self.clip = Clip(len(self.files), size, color, None if fps is None else 1 / fps, fps)

    def frames(self) -> Iterator[Frame]:
        """Yield all frames; an image is read when the frame is loaded."""
        for index, file in enumerate(self.files):
            yield Frame(index, index, partial(self._read, file))

    def name(self, index: int) -> Path:
        """Return the file name of a frame."""
        return Path(self.files[index].name)

    def _read(self, file: Path) -> ImageData:
        image = read_image(file)
        self._check_size(file, image.size, self.clip.size)
        return image

    def _check_size(self, file: Path, size: tuple[int, int], expected: tuple[int, int]) -> None:
        if size != expected:
            raise NystraError(
                f"the frame {file} is {size[1]}x{size[0]}, the first one, {self.files[0].name}, "
                f"{expected[1]}x{expected[0]}: the frames of a video must have one size. If these "
                "are unrelated images, omit `video`"
            )


def frame_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key of a name: its numbers, and the text between them."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part[:4000]), "") if place % 2 else (-1, part) for place, part in enumerate(parts)]
