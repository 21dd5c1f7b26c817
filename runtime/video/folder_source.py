"""The frames of a folder, in the order of the numbers in their names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

from ...core.errors import NystraError
from ..images.image_data import ImageData
from ..images.images import READ_SUFFIXES, read_image, read_image_size
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
        self.files = files or list_frames(path)
        size = read_image_size(self.files[0])
        for file in self.files[1:]:
            _check_size(file, read_image_size(file), self.files[0], size)
        first = read_image(self.files[0])
        alpha, deep = first.alpha is not None, first.bits > 8
        kept = f"yuv{'a' if alpha else ''}420p{'10le' if deep else ''}"
        matrix = default_matrix(size[0])
        color = Color(kept, 10 if deep else 8, alpha, matrix, False, matrix, matrix)
        base = None if fps is None else 1 / fps
        self.clip = Clip(len(self.files), size, color, base, fps)

    def frames(self) -> Iterator[Frame]:
        """Yield all frames; an image is read when the frame is loaded."""
        for index, file in enumerate(self.files):
            yield Frame(index, index, partial(self._read, file))

    def name(self, index: int) -> Path:
        """Return the file name of a frame."""
        return Path(self.files[index].name)

    def _read(self, file: Path) -> ImageData:
        image = read_image(file)
        _check_size(file, image.size, self.files[0], self.clip.size)
        return image


def list_frames(folder: Path) -> list[Path]:
    """Return the images of a folder in order; ``frame2`` comes before ``frame10``.

    Raises:
        NystraError: There is no such folder, or no image in it.
    """
    if not folder.is_dir():
        raise NystraError(f"no folder at {folder}, expected a folder of frames")
    files = [
        file
        for file in folder.iterdir()
        if file.suffix.lower() in READ_SUFFIXES and not file.name.startswith(".") and file.is_file()
    ]
    if not files:
        raise NystraError(f"the folder {folder} holds no images: {', '.join(READ_SUFFIXES)}")
    return sorted(files, key=lambda file: frame_order(file.name))


def frame_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key of a name: its numbers, and the text between them."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part[:4000]), "") if place % 2 else (-1, part) for place, part in enumerate(parts)]


def _check_size(file: Path, size: tuple[int, int], first: Path, expected: tuple[int, int]) -> None:
    if size != expected:
        raise NystraError(
            f"the frame {file} is {size[1]}x{size[0]}, the first one, {first.name}, "
            f"{expected[1]}x{expected[0]}: the frames of a video must have one size. If these "
            "are unrelated images, omit `video`"
        )
