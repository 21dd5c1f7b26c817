"""What a model takes besides the picture: the mask of a hole, or a reference picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ....core.errors import NystraError
from ...images.images import SUFFIXES, read_picture
from ...images.picture import Picture
from .restorer import GREY_WEIGHTS, check_mask_size

Array = npt.NDArray[Any]

ROLES = ("mask", "reference")
"""What a picture may have beside it."""

_BLACK, _WHITE = 0.1, 0.9


@dataclass(frozen=True)
class Companions:
    """Where masks and references come from.

    Attributes:
        mask: A picture for all, or a folder of pictures with the names of the inputs; None where
            the model takes none.
        reference: The same of the reference.
    """

    mask: Path | None = None
    reference: Path | None = None

    def check_exist(self) -> None:
        """Raise NystraError when a file or folder that was given is not there."""
        for what, path in (("mask", self.mask), ("reference", self.reference)):
            if path is not None and not path.exists():
                raise NystraError(f"there is no {what} or folder at {path}")

    def read(self, picture: Path, size: tuple[int, int]) -> tuple[dict[str, Any], list[str]]:
        """Return the arguments a ``Restorer`` takes for one picture, and warnings.

        Args:
            picture: Its path.
            size: Its height and width in pixels.

        Raises:
            NystraError: None fits the picture, it cannot be read, or has another size.
        """
        given = {"mask": self.mask, "reference": self.reference}
        paths = {
            role: find_partner(path, picture, role)
            for role, path in given.items()
            if path is not None
        }
        pictures = {role: read_picture(path) for role, path in paths.items()}
        return companion_arrays(pictures, size, f"the mask {paths.get('mask')}")


def companion_arrays(
    pictures: Mapping[str, Picture], size: tuple[int, int], mask: str = "the mask"
) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments a ``Restorer`` takes for pictures by their role, and warnings.

    Args:
        pictures: Those of the roles in `ROLES` that there are; others are passed over.
        size: Height and width of the picture that they go with.
        mask: What to call the mask in the messages.

    Raises:
        NystraError: The mask has another size.
    """
    arrays: dict[str, Any] = {}
    warnings: list[str] = []
    if "mask" in pictures:
        arrays["mask"], warnings = mask_of(pictures["mask"], size, mask)
    if "reference" in pictures:
        arrays["reference"] = pictures["reference"].pixels
    return arrays, warnings


def find_partner(given: Path, picture: Path, what: str) -> Path:
    """Return the file itself, or that of a folder whose name, or else stem, is the picture's.

    Raises:
        NystraError: There is none, or several have the stem.
    """
    if not given.is_dir():
        return given
    if (given / picture.name).is_file():
        return given / picture.name
    matches = sorted(
        path
        for path in given.iterdir()
        if path.stem == picture.stem and path.suffix.lower() in SUFFIXES and path.is_file()
    )
    if len(matches) != 1:
        names = ", ".join(path.name for path in matches)
        raise NystraError(
            f"the folder {given} holds no {what} for {picture.name}: expected "
            f"{picture.stem}.png or another picture of that name"
            if not matches
            else f"the folder {given} holds several {what}s for {picture.name}: {names}"
        )
    return matches[0]


def mask_of(
    picture: Picture, size: tuple[int, int], name: str = "the mask"
) -> tuple[npt.NDArray[np.float32], list[str]]:
    """Return what a picture masks: white is to be filled, black (and what is transparent) stays.

    Args:
        picture: Grey or in colour; the luma of a colour picture counts.
        size: Height and width it must have.
        name: What to call it in the messages.

    Returns:
        (height, width) of 0 and 1 (1 from half-way to white on), and warnings: greys, nothing to
        fill, nothing to fill from.

    Raises:
        NystraError: It has another size.
    """
    level = picture.pixels[:, :, 0] if picture.grey else picture.pixels @ GREY_WEIGHTS
    check_mask_size(level, size, name)
    if picture.alpha is not None:
        level = level * picture.alpha
    mask = (level > 0.5).astype(np.float32)
    grey, filled = float(np.mean((level > _BLACK) & (level < _WHITE))), float(mask.mean())
    warnings = []
    if grey > 0:
        warnings.append(
            f"{name} is not black and white: {grey:.2%} of it is grey; what is lighter "
            "than half-way is filled"
        )
    if filled == 0:
        warnings.append(f"{name} is black: nothing is filled (white = fill)")
    elif filled == 1:
        warnings.append(f"{name} is white: nothing of the picture is left to fill from")
    return mask, warnings
