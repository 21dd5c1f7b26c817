"""The files for the further inputs of a run: masks, references and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ....core.arrays import Array
from ....core.errors import NystraError
from ....core.ports.port import Port
from ...images.image_data import ImageData
from ...images.images import READ_SUFFIXES, read_image
from .auxiliary_roles import AUXILIARY_ROLES, match_inputs


@dataclass(frozen=True)
class AuxiliaryInputs:
    """The files of the inputs other than the image.

    Attributes:
        ports: The inputs.
        paths: By the name of an input: one image for all, or a folder of images named like the
            images of the run.
    """

    ports: tuple[Port, ...] = ()
    paths: Mapping[str, Path] | None = None

    @classmethod
    def match(cls, ports: Sequence[Port], files: Mapping[str, Path]) -> AuxiliaryInputs:
        """Return paths with the inputs that they are for; see `match_inputs`.

        Raises:
            NystraError: One is missing, or one too many.
        """
        return cls(tuple(ports), match_inputs(ports, files))

    def read(self, image: Path, size: tuple[int, int]) -> tuple[dict[str, Array], list[str]]:
        """Return the arrays for one image, by the name of the input, and warnings.

        Args:
            image: Its path.
            size: Its height and width in pixels.

        Raises:
            NystraError: No file belongs to the image, it cannot be read, or has another size.
        """
        arrays: dict[str, Array] = {}
        warnings: list[str] = []
        for port in self.ports:
            path = find_partner((self.paths or {})[port.name], image, port.role)
            role = AUXILIARY_ROLES[port.role]
            arrays[port.name], more = role.read(read_image(path), size, f"the {port.role} {path}")
            warnings += more
        return arrays, warnings


def auxiliary_arrays(
    ports: Sequence[Port], images: Mapping[str, ImageData], size: tuple[int, int]
) -> tuple[dict[str, Array], list[str]]:
    """Return the arrays for a `Restorer`, by the name of the input, and warnings.

    Args:
        ports: The inputs besides the image.
        images: By role or name as in `match_inputs`.
        size: Height and width of the image that they go with.

    Raises:
        NystraError: One is missing or one too many, or has another size.
    """
    matched = match_inputs(ports, images)
    arrays: dict[str, Array] = {}
    warnings: list[str] = []
    for port in ports:
        role = AUXILIARY_ROLES[port.role]
        arrays[port.name], more = role.read(matched[port.name], size, f"the {port.role}")
        warnings += more
    return arrays, warnings


def find_partner(place: Path, image: Path, what: str) -> Path:
    """Return the file itself, or the file of a folder with the name or stem of the image.

    Raises:
        NystraError: There is none, or several have the stem.
    """
    if not place.is_dir():
        return place
    if (place / image.name).is_file():
        return place / image.name
    matches = sorted(
        path
        for path in place.iterdir()
        if path.stem == image.stem and path.suffix.lower() in READ_SUFFIXES and path.is_file()
    )
    if len(matches) != 1:
        names = ", ".join(path.name for path in matches)
        raise NystraError(
            f"the folder {place} holds no {what} for {image.name}: expected "
            f"{image.stem}.png or another image of that name"
            if not matches
            else f"the folder {place} holds several {what}s for {image.name}: {names}"
        )
    return matches[0]
