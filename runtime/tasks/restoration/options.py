"""The options of images and videos, apart from input and output, and of their quality."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ....core.errors import NystraError
from ....core.option import Options, option
from ....core.option_kinds import Choice, File, Number, Switch, Text
from ...options import (
    FORMAT,
    INPUTS,
    MASK,
    MAX_MEMORY,
    OVERLAP,
    OVERWRITE,
    QUALITY,
    REFERENCE,
    TILE,
    InputValue,
)

if TYPE_CHECKING:
    from ....core.arrays import Array


@dataclass(frozen=True)
class RunOptions(Options):
    """Options of a restoration of images or videos.

    ``inputs`` are the further inputs: files like ``mask`` and ``reference``, by their role, or by
    the name of the input if several have the same role; and values, by the name of the input.
    """

    heading: ClassVar[str] = "images and videos"
    tile: int = option(TILE)
    overlap: int | None = option(OVERLAP)
    max_memory: int | None = option(MAX_MEMORY)
    overwrite: bool = option(OVERWRITE, doc="replace existing outputs, never the input")
    skip_existing: bool = option(
        Switch("skip images whose output exists, to continue an interrupted run")
    )
    recursive: bool = option(Switch("include subfolders"))
    format: str | None = option(FORMAT)
    suffix: str = option(
        Text("", "appended to the file names of a folder, such as _x2", metavar="TEXT")
    )
    quality: int | None = option(QUALITY)
    mask: str | os.PathLike[str] | None = option(MASK)
    reference: str | os.PathLike[str] | None = option(REFERENCE)
    quiet: bool = option(Switch("no progress bar"))
    inputs: Mapping[str, InputValue] | None = option(INPUTS, kw_only=True)
    jobs: int | None = option(
        Number(
            None,
            "number of processes, which share the images of a folder and the threads",
            1,
            default_text="one",
            hard_maximum=256,
        )
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overwrite and self.skip_existing:
            raise NystraError("`overwrite` and `skip_existing` contradict each other: give one")

    @property
    def tiling(self) -> dict[str, Any]:
        """The options of tiling."""
        return {"tile": self.tile, "overlap": self.overlap, "max_memory": self.max_memory}

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form, from which ``RunOptions(**form)`` restores the options."""
        document = {name: _to_json(value) for name, value in self.values().items()}
        if self.inputs is not None:
            document["inputs"] = {name: _to_json(value) for name, value in self.inputs.items()}
        return document

    def auxiliary(self) -> dict[str, Path | Array]:
        """Return the inputs besides the image, files or values, by role or name.

        Raises:
            NystraError: A file or folder does not exist.
        """
        from .conditions import numbers_or_path  # --help does without numpy

        files = {"mask": self.mask, "reference": self.reference}
        values: dict[str, Path | Array] = {
            key: Path(path) for key, path in files.items() if path is not None
        }
        values |= {key: numbers_or_path(value) for key, value in (self.inputs or {}).items()}
        for key, path in values.items():
            if isinstance(path, Path) and not path.exists():
                raise NystraError(f"no {key} or folder at {path}")
        return values


@dataclass(frozen=True)
class QualityOptions(Options):
    """Images or frames with a ground truth."""

    images: str | os.PathLike[str] | None = option(
        File(None, "inputs with a ground truth", metavar="FOLDER")
    )
    truth: str | os.PathLike[str] | None = option(
        File(None, "ground truth of `images`", metavar="FOLDER")
    )
    video: bool = option(
        Switch(
            "`images` and `truth` are the frames of one video: also measure flicker (implied by "
            "a video model)"
        )
    )
    mask: str | os.PathLike[str] | None = option(
        MASK, doc="masks of `images`, for inpainting: white is filled"
    )
    reference: str | os.PathLike[str] | None = option(
        REFERENCE, doc="reference images of `images`, for models that take one"
    )
    inputs: Mapping[str, InputValue] | None = option(INPUTS)
    channel: str = option(Choice("y", "color channels that are compared", ("y", "rgb")))
    crop: int | None = option(
        Number(None, "ignored border", 0, unit="pixels", default_text="scale")
    )
    pad: str = option(
        Choice(
            "none",
            "official: mirror each image as in SwinIR's test procedure",
            ("none", "official"),
        )
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.images is None) != (self.truth is None):
            raise NystraError("`images` and `truth` are used together: give both or neither")
        if self.images is None and (self.mask, self.reference, self.inputs) != (None, None, None):
            raise NystraError(
                "`mask`, `reference` and `inputs` belong to `images` and `truth`: give these too"
            )
        if self.images is None and self.video:
            raise NystraError("`video` belongs to `images` and `truth`: give these too")


def _to_json(value: Any) -> Any:
    """Return a path as a text and an array as numbers, for JSON."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.tolist() if hasattr(value, "tolist") else value
