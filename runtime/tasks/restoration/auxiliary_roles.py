"""The inputs of a network other than the image, one row per role, and their files in a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ....core.arrays import Array
from ....core.errors import NystraError
from ....core.ports.examples import example_array
from ....core.ports.pixels import to_range
from ....core.ports.port import CONDITION, UNIT, Port, image_size, key_ports
from ...images.image_data import ImageData, luma_of
from ...images.images import READ_SUFFIXES, read_image
from .conditions import condition_values, describe_values, read_values

T = TypeVar("T")

_BLACK, _WHITE = 0.1, 0.9
_HOLE = Port("mask", "mask", lengths={"batch": 1, "channels": 1})


@dataclass(frozen=True)
class AuxiliaryRole:
    """How the inputs of a role are given.

    Attributes:
        purpose: What a network with such an input does.
        example: An example of a file, with its meaning.
        channels: Channels of the input, if the model leaves them free.
        same_size: It has the image's height and width; otherwise its own.
        read: Takes an image, height and width of the image that it belongs to, and its name;
            returns its pixels (H, W, C) and warnings.
        stand_in: Takes the pixels (H, W, C) of an image; returns pixels to use with it if the user
            gives none.
    """

    purpose: str
    example: str
    channels: int
    same_size: bool
    read: Callable[[ImageData, tuple[int, int], str], tuple[Array, list[str]]]
    stand_in: Callable[[Array], Array]


def read_mask(
    image: ImageData, size: tuple[int, int], name: str = "the mask"
) -> tuple[npt.NDArray[np.float32], list[str]]:
    """Return the mask of an image: white is to be filled, black and transparent pixels are kept.

    Args:
        image: Gray or in color; the luma of a color image counts.
        size: Height and width it must have.
        name: What to call it in the messages.

    Returns:
        (height, width, 1) of 0 and 1 (1 from mid-gray on), and warnings: grays, nothing
        to fill, nothing to fill from.

    Raises:
        NystraError: It has another size.
    """
    level = image.pixels[:, :, 0] if image.gray else luma_of(image.pixels)
    check_same_size(level.shape, size, name)
    if image.alpha is not None:
        level = level * image.alpha
    mask = (level > 0.5).astype(np.float32)
    gray, filled = float(np.mean((level > _BLACK) & (level < _WHITE))), float(mask.mean())
    warnings = []
    if gray > 0:
        warnings.append(
            f"{name} is not black and white: {gray:.2%} of it is gray; pixels lighter than "
            "mid-gray are filled"
        )
    if filled == 0:
        warnings.append(f"{name} is black, so nothing would be filled (white = fill)")
    elif filled == 1:
        warnings.append(
            f"{name} is white: every pixel would be filled, and none of the image is kept"
        )
    return mask[:, :, None], warnings


def _read_pixels(image: ImageData, size: tuple[int, int], name: str) -> tuple[Array, list[str]]:
    return image.pixels, []


def _hole(pixels: Array) -> Array:
    """Return a mask with a hole in the middle."""
    return example_array(_HOLE, image_size(*pixels.shape[:2]))[0, 0, :, :, None]


AUXILIARY_ROLES = {
    "mask": AuxiliaryRole("fills holes", "MASK.png (white = fill)", 1, True, read_mask, _hole),
    "reference": AuxiliaryRole(
        "copies", "IMAGE.png", 3, False, _read_pixels, lambda pixels: pixels[:, ::-1]
    ),
}


def stand_in(port: Port, pixels: Array) -> Array:
    """Return what a `Restorer` takes for an input if the user gives nothing.

    Args:
        port: The input.
        pixels: The image (H, W, C) that it goes with.
    """
    if port.role == CONDITION:
        example: Array = example_array(port, {"batch": 1})[0]
        return example
    return AUXILIARY_ROLES[port.role].stand_in(pixels)


def match_inputs(ports: Sequence[Port], values: Mapping[str, T]) -> dict[str, T]:
    """Return the given values by the names of their inputs.

    Args:
        ports: The inputs besides the image.
        values: By the role of an input, if no other one has it, or by its name.

    Raises:
        NystraError: One is missing, or one too many.
    """
    keyed = key_ports(ports)
    names = {port.name: port for port in ports}
    matched: dict[str, T] = {}
    for key, value in values.items():
        port = keyed.get(key) or names.get(key)
        if port is None:
            what = f"`{key}`" if key in AUXILIARY_ROLES else f"`inputs` {key}"
            raise NystraError(f"the model has no {key} input: omit {what}")
        matched[port.name] = value
    for key, port in keyed.items():
        if port.name not in matched and port.role == CONDITION:
            raise NystraError(
                f"the model needs a value of its input {key}: give `inputs` {key}=VALUE, "
                f"{describe_values(port)}"
            )
        if port.name not in matched:
            role = AUXILIARY_ROLES[port.role]
            raise NystraError(
                f"the model {role.purpose} and needs a {key}: give `{key}` {role.example}"
            )
    return matched


def check_same_size(shape: tuple[int, ...], size: tuple[int, int], name: str = "the mask") -> None:
    """Raise NystraError where an array (H, W, ...) is not of its image's height and width."""
    if shape[:2] != size:
        raise NystraError(
            f"{name} is {shape[1]}x{shape[0]} pixels, its image {size[1]}x{size[0]}: expected "
            "the same size"
        )


def planes_of(port: Port, pixels: Array) -> npt.NDArray[np.float32]:
    """Return pixels (H, W) or (H, W, C) as (1, C', H, W) in the range of an input."""
    image: Array = pixels[:, :, None] if pixels.ndim == 2 else pixels
    channels = port.channels or AUXILIARY_ROLES[port.role].channels
    if image.shape[2] == 3 and channels == 1:
        image = luma_of(image)[:, :, None]
    elif image.shape[2] == 1:
        image = np.repeat(image, channels, axis=2)
    planes = np.ascontiguousarray(np.moveaxis(image, 2, 0)[None], dtype=np.float32)
    return to_range(planes, port.range or UNIT)


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
            value = (self.given or {})[port.name]
            if port.role == CONDITION:
                arrays[port.name] = condition_values(port, _values(port, value, image))
                continue
            if not isinstance(value, Path):
                raise NystraError(f"the {port.role} is {value}, expected an image or a folder")
            path = find_partner(value, image, port.role, READ_SUFFIXES)
            role = AUXILIARY_ROLES[port.role]
            arrays[port.name], more = role.read(read_image(path), size, f"the {port.role} {path}")
            warnings += more
        return arrays, warnings


def _values(port: Port, value: Path | Array, image: Path) -> Array:
    """Return the values of a condition for an image."""
    if not isinstance(value, Path):
        return value
    return read_values(find_partner(value, image, port.name, (".npy",)), f"the {port.name}")


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
    of_stem = (path for path in place.iterdir() if path.stem == image.stem and path.is_file())
    matches = sorted(path for path in of_stem if path.suffix.lower() in suffixes)
    if len(matches) != 1:
        names = ", ".join(path.name for path in matches)
        raise NystraError(
            f"the folder {place} holds no {what} for {image.name}: expected "
            f"{image.stem}{'.npy' if '.npy' in suffixes else '.png or another image of that name'}"
            if not matches
            else f"the folder {place} holds several {what}s for {image.name}: {names}"
        )
    return matches[0]
