"""A folder of restored frames, one file each."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from ...core.errors import NystraError
from ...core.files.writing import check_can_make, make_folder
from ..images.image_data import ImageData
from ..images.images import Naming, find_existing, write_image
from .clip import Frame, FrameSource


class FolderSink:
    """Writes images; written ones are kept whatever happens to the others.

    Attributes:
        advice: How a run continues after an error.
        warnings: What of the source and of its frames was not kept, each text once.
    """

    advice = "Finished frames are kept: add `skip_existing` to continue from there."

    def __init__(
        self,
        folder: Path,
        source: FrameSource,
        naming: Naming,
        *,
        overwrite: bool = False,
        skip_existing: bool = False,
        quality: int | None = None,
    ) -> None:
        """Find existing frames; nothing is written yet.

        Args:
            folder: The folder, which is created.
            source: The source of the frames.
            naming: The names of the files.
            overwrite: Replace existing frames.
            skip_existing: Skip existing frames.
            quality: As in `write_image`.

        Raises:
            NystraError: The folder cannot be written or is the input itself, two frames have the
                same name, or frames exist and neither option is set.
        """
        if folder.exists() and not folder.is_dir():
            raise NystraError(f"{folder} is a file, expected a folder for the frames")
        if folder.exists() and folder.samefile(source.path):
            raise NystraError(f"the output {folder} is the input itself: choose another folder")
        check_can_make(folder)
        clip = source.clip
        self._places = [folder / naming.name(source.name(index)) for index in range(clip.count)]
        if len(set(self._places)) < clip.count:
            raise NystraError(
                f"several frames of {source.path} would have the same name in {folder}"
            )
        self._existing = find_existing(
            self._places, "frames", overwrite=overwrite, skip_existing=skip_existing
        )
        self._overwrite, self._quality = overwrite, quality
        self.warnings: list[str] = []
        if clip.besides:
            parts = ", ".join(clip.besides)
            self.warnings.append(f"not kept, since a folder holds frames only: {parts}")

    def opened(self) -> AbstractContextManager[None]:
        """Return a block in which frames are written: each is complete by itself."""
        return nullcontext()

    def wants(self, index: int) -> bool:
        """Whether a frame is missing."""
        return self._places[index] not in self._existing

    def write(self, frame: Frame, image: ImageData) -> None:
        """Write a frame.

        Raises:
            NystraError: The folder cannot be written, or the disk is full.
        """
        place = self._places[frame.index]
        make_folder(place.parent)
        lost = write_image(place, image, overwrite=self._overwrite, quality=self._quality)
        self.warnings = list(dict.fromkeys([*self.warnings, *image.notes, *lost]))
