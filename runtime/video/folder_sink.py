"""A folder of restored frames, one file each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from ...core.errors import NystraError
from ...core.files.writing import check_can_make, make_folder
from ..images.image_data import ImageData
from ..images.images import Naming, write_image
from .clip import Frame, FrameSource
from .file_source import VideoFile, open_video
from .other_streams import describe

_BT709 = 2
"""The numbers of BT.709 and of unspecified colors (ITU-T H.273) go so far."""


class FolderSink(AbstractContextManager["FolderSink"]):
    """Writes images; written ones are kept whatever happens to the others.

    Attributes:
        advice: How a run continues after an error.
        warnings: What of the frames' files was not kept, each text once.
    """

    warnings: Sequence[str]
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
        names = [naming.name(source.name(index)) for index in range(source.clip.count)]
        if len(set(names)) < len(names):
            raise NystraError(
                f"several frames of {source.path} would have the same name in {folder}"
            )
        self._places = [folder / name for name in names]
        existing = {index for index, place in enumerate(self._places) if place.exists()}
        if existing and not overwrite and not skip_existing:
            raise NystraError(
                f"{len(existing)} of {len(names)} frames exist, the first is "
                f"{self._places[min(existing)]}: add `skip_existing` to write only the others, or "
                "`overwrite` to replace them"
            )
        self._skipped = existing if skip_existing else set()
        self._overwrite = overwrite
        self._quality = quality
        self.warnings = _lost(source)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def wants(self, index: int) -> bool:
        """Whether a frame is missing."""
        return index not in self._skipped

    def write(self, frame: Frame, image: ImageData) -> None:
        """Write a frame.

        Raises:
            NystraError: The folder cannot be written, or the disk is full.
        """
        place = self._places[frame.index]
        make_folder(place.parent)
        lost = write_image(place, image, overwrite=self._overwrite, quality=self._quality)
        self.warnings = list(dict.fromkeys([*self.warnings, *image.notes, *lost]))

    def finish(self) -> None:
        """Do nothing: every frame is written already."""


def _lost(source: FrameSource) -> list[str]:
    if not isinstance(source, VideoFile):
        return []
    with open_video(source.path) as (container, video):
        parts = [describe(track) for track in container.streams if track.index != video.index]
        parts += ["chapters"] if container.chapters() else []
    color = source.clip.color
    if max(color.primaries, color.transfer) > _BT709:
        parts.append("color tags")
    if not source.clip.even:
        parts.append("the times of the frames")
    return [f"not kept, since a folder holds frames only: {', '.join(parts)}"] if parts else []
