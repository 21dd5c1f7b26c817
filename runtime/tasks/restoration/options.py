"""What is asked for besides an input and an output, of pictures and of videos alike."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....core.errors import NystraError
from .auxiliary_inputs import Companions

Report = Callable[[dict[str, Any], int, int], None]
"""Called with (result, things done, things in all) after each picture or frame."""


@dataclass(frozen=True)
class RunOptions:
    """The flags of ``nystra run`` that pictures and videos have in common.

    Attributes:
        tile: Side of the tiles in input pixels; 0 chooses by the available memory.
        overlap: Of the tiles in input pixels; None is 32, less where the tile is small.
        max_memory: Bytes that this process may take in all; None is what is free.
        overwrite: Replace files that are there; never the input itself.
        skip_existing: Leave out what is there: go on where a run stopped.
        recursive: Take the pictures of subfolders too; a video has none, and refuses it.
        format: ``png``, ``jpg``, ``tif`` or ``webp``; None keeps the input's, or takes PNG where
            that is not written (BMP, GIF, AVIF, the standard output).
        suffix: Put behind the stems of names in a folder, such as ``_x2``.
        quality: Of JPEG (None is 95), and of WebP (None is lossless), 1 to 100.
        mask: For a model that fills holes: a picture, white where it is to be filled, or a
            folder of them with the names of the inputs. What is not to be filled comes out as
            it went in.
        reference: For a model that copies from another picture: that picture, or a folder.
        quiet: Show no progress bar.
        jobs: Processes that share the pictures of a folder, each with the model loaded; None is
            this one alone. While one reads or writes, others run the model.
    """

    tile: int = 0
    overlap: int | None = None
    max_memory: int | None = None
    overwrite: bool = False
    skip_existing: bool = False
    recursive: bool = False
    format: str | None = None
    suffix: str = ""
    quality: int | None = None
    mask: str | os.PathLike[str] | None = None
    reference: str | os.PathLike[str] | None = None
    quiet: bool = False
    jobs: int | None = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if self.jobs is not None and self.jobs < 1:
            raise NystraError(f"--jobs is {self.jobs}, expected 1 or more processes")
        if self.overwrite and self.skip_existing:
            raise NystraError("--overwrite and --skip-existing contradict each other: give one")

    @property
    def tiling(self) -> dict[str, Any]:
        """How a picture is cut, as what restores one takes it."""
        return {"tile": self.tile, "overlap": self.overlap, "max_memory": self.max_memory}

    def companions(self) -> Companions:
        """Return masks and references.

        Raises:
            NystraError: A file or folder that was given is not there.
        """
        mask, reference = (
            None if given is None else Path(given) for given in (self.mask, self.reference)
        )
        companions = Companions(mask, reference)
        companions.check_exist()
        return companions
