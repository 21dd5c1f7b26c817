"""Folders of frames, in the order of the numbers in their names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from ...core.errors import NystraError
from ...core.files.writing import check_can_make, make_folder
from ..images.image_data import ImageData
from ..images.images import Naming, read_image, read_image_size, write_image
from ..images.pairs import list_folder


class FrameFolder:
    """Images of one size.

    Attributes:
        path: The folder.
        files: The images, in order.
        count: Number of images.
        size: Height and width in pixels.
        warnings: None.
    """

    def __init__(self, path: Path, files: list[Path] | None = None) -> None:
        """Look at the header of each image: of the given ones, or of all in the folder.

        Raises:
            NystraError: There are none, they have several sizes, or one cannot be read.
        """
        self.path = path
        self.files = sorted(files or list_folder(path), key=lambda file: frame_order(file.name))
        self.count = len(self.files)
        self.size = read_image_size(self.files[0])
        self.warnings: list[str] = []
        for file in self.files:
            size = read_image_size(file)
            if size != self.size:
                raise NystraError(
                    f"the frame {file} is {size[1]}x{size[0]}, the first one, "
                    f"{self.files[0].name}, {self.size[1]}x{self.size[0]}: the frames of a video "
                    "must have one size"
                )

    def frames(self) -> Iterator[tuple[Path, ImageData]]:
        """Yield the name and the image of each file."""
        for file in self.files:
            yield Path(file.name), read_image(file)


def frame_order(name: str) -> list[tuple[int, str]]:
    """Return a sort key of a name: its numbers, and the text between them."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part[:4000]), "") if place % 2 else (-1, part) for place, part in enumerate(parts)]


class FolderSink:
    """Writes restored frames, one file each.

    Attributes:
        warnings: What of the frames' files was not kept, each text once.
    """

    def __init__(
        self,
        folder: Path,
        source: FrameFolder,
        naming: Naming,
        *,
        overwrite: bool = False,
        quality: int | None = None,
    ) -> None:
        """Check the folder; nothing is written yet.

        Raises:
            NystraError: The folder cannot be written or is the input itself, two frames have the
                same name, or frames exist and may not be replaced.
        """
        if folder.exists() and not folder.is_dir():
            raise NystraError(f"{folder} is a file, expected a folder for the frames")
        if folder.exists() and folder.samefile(source.path):
            raise NystraError(f"the output {folder} is the input itself: choose another folder")
        check_can_make(folder)
        self._places = [folder / naming.name(file) for file in source.files]
        if len(set(self._places)) < source.count:
            raise NystraError(
                f"several frames of {source.path} would have the same name in {folder}"
            )
        existing = [place for place in self._places if place.exists()]
        if existing and not overwrite:
            raise NystraError(
                f"{len(existing)} of {source.count} frames exist, the first is {existing[0]}: "
                "choose another folder or add `overwrite`"
            )
        self._overwrite, self._quality = overwrite, quality
        self.warnings: list[str] = []

    def open(self) -> AbstractContextManager[None]:
        """Return a block in which frames are written: each is complete by itself."""
        return nullcontext()

    def write(self, index: int, image: ImageData) -> None:
        """Write a frame.

        Raises:
            NystraError: The folder cannot be written, or the disk is full.
        """
        place = self._places[index]
        make_folder(place.parent)
        lost = write_image(place, image, overwrite=self._overwrite, quality=self._quality)
        self.warnings = list(dict.fromkeys([*self.warnings, *image.notes, *lost]))
