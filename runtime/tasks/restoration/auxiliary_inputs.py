"""The files for the further inputs of a run: masks, references and others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ....core.arrays import Array
from ....core.errors import NystraError
from ....core.ports.port import CONDITION, Port
from ...images.image_data import ImageData
from ...images.images import READ_SUFFIXES, read_image
from .auxiliary_roles import AUXILIARY_ROLES, match_inputs
from .conditions import condition_values, read_values


@dataclass(frozen=True)
class AuxiliaryInputs:
    """The files of the inputs other than the image.

    Attributes:
        ports: The inputs.
        given: By the name of an input: one file for all images, or a folder of files named like
            the images of the run; values of a condition may be an array.
    """

    ports: tuple[Port, ...] = ()
    given: Mapping[str, Path | Array] | None = None

    @classmethod
    def match(cls, ports: Sequence[Port], files: Mapping[str, Path | Array]) -> AuxiliaryInputs:
        """Return files and values with the inputs that they are for; see `match_inputs`.

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
            given = (self.given or {})[port.name]
            if port.role == CONDITION:
                arrays[port.name] = condition_values(port, _values(port, given, image))
                continue
            if not isinstance(given, Path):
                raise NystraError(f"the {port.role} is {given}, expected an image or a folder")
            path = find_partner(given, image, port.role, READ_SUFFIXES)
            role = AUXILIARY_ROLES[port.role]
            arrays[port.name], more = role.read(read_image(path), size, f"the {port.role} {path}")
            warnings += more
        return arrays, warnings


def _values(port: Port, given: Path | Array, image: Path) -> Array:
    """Return the values of a condition for an image."""
    if not isinstance(given, Path):
        return given
    return read_values(find_partner(given, image, port.name, (".npy",)), f"the {port.name}")


def auxiliary_arrays(
    ports: Sequence[Port], given: Mapping[str, ImageData | Array], size: tuple[int, int]
) -> tuple[dict[str, Array], list[str]]:
    """Return the arrays for a `Restorer`, by the name of the input, and warnings.

    Args:
        ports: The inputs besides the image.
        given: Images, and values of conditions, by role or name as in `match_inputs`.
        size: Height and width of the image that they go with.

    Raises:
        NystraError: One is missing or one too many, or has another size.
    """
    matched = match_inputs(ports, given)
    arrays: dict[str, Array] = {}
    warnings: list[str] = []
    for port in ports:
        value = matched[port.name]
        if isinstance(value, ImageData):
            role = AUXILIARY_ROLES[port.role]
            arrays[port.name], more = role.read(value, size, f"the {port.role}")
            warnings += more
        else:
            arrays[port.name] = condition_values(port, value)
    return arrays, warnings


def find_partner(place: Path, image: Path, what: str, suffixes: Collection[str]) -> Path:
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
        if path.stem == image.stem and path.suffix.lower() in suffixes and path.is_file()
    )
    if len(matches) != 1:
        names = ", ".join(path.name for path in matches)
        raise NystraError(
            f"the folder {place} holds no {what} for {image.name}: expected "
            f"{image.stem}{'.npy' if '.npy' in suffixes else '.png or another image of that name'}"
            if not matches
            else f"the folder {place} holds several {what}s for {image.name}: {names}"
        )
    return matches[0]
