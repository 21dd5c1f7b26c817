"""How an image is prepared for a classifier, and the JSON form."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..errors import NystraError
from ..json_text import is_number, is_whole, parse_json, quote, require_keys

FILTERS = ("bilinear", "bicubic")

_LARGEST_SIDE = 1 << 12
_MAX_CHANNELS = 64
_LARGEST_VALUE = 1e6
_MAX_LABELS = 1 << 16
_LONGEST_LABEL = 512
_LONGEST_TEXT = 4 << 20


@dataclass(frozen=True)
class Resize:
    """How an image is resized.

    Attributes:
        sides: In pixels. One number: the shorter side, the other in proportion, rounded down. Two:
            height and width, whatever the image's shape.
        filter: ``bilinear`` or ``bicubic``.
        antialias: When shrinking, widen the filter so that it covers every pixel, as Pillow does;
            otherwise only the 2 (bilinear) or 4 pixels per axis around each position count.
    """

    sides: tuple[int, ...]
    filter: str = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        if len(self.sides) not in (1, 2) or not all(map(_is_side, self.sides)):
            raise NystraError(
                f"the size to resize to is {self.sides}, expected the shorter side or height and "
                f"width, each 1 to {_LARGEST_SIDE} pixels"
            )
        if self.filter not in FILTERS:
            raise NystraError(f"the filter is {self.filter!r}, expected {' or '.join(FILTERS)}")

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the resized image, from those of the image."""
        if len(self.sides) == 2:
            return self.sides[0], self.sides[1]
        shorter = min(height, width)
        return self.sides[0] * height // shorter, self.sides[0] * width // shorter


@dataclass(frozen=True)
class Preprocessing:
    """The preparation of an image in 0..1: resize, center crop, (x - mean) / std; in that order.

    Attributes:
        resize: How the image is resized; None: not at all.
        crop: Height and width of the center crop; None: no crop.
        mean: Subtracted from each channel; empty: nothing is subtracted.
        std: Divisor of each channel; as many as `mean`.
        labels: Names of the classes, in their order; empty if unknown.
        in_graph: The model file does this itself, for images of any size.
    """

    resize: Resize | None = None
    crop: tuple[int, int] | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    in_graph: bool = False

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not all(value > 0 for value in self.std):
            raise NystraError(
                f"the mean is {self.mean} and the std {self.std}, expected equally many numbers, "
                "each std above 0"
            )
        if self.crop is None:
            return
        if self.resize is None or self.crop[0] < 1 or self.crop[1] < 1:
            raise NystraError(f"the crop {self.crop} needs a size to resize to")
        smallest = self.resize.size(1, 1)
        if self.crop[0] > smallest[0] or self.crop[1] > smallest[1]:
            raise NystraError(
                f"the crop {self.crop} is larger than the size to resize to, {self.resize.sides}"
            )

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of the result, or None if they depend on the image."""
        if self.crop is not None:
            return self.crop
        if self.resize is not None and len(self.resize.sides) == 2:
            return self.resize.size(1, 1)
        return None

    @property
    def remaining(self) -> Preprocessing:
        """The steps that are left to the caller of a model file: none, or all of them."""
        return Preprocessing(labels=self.labels) if self.in_graph else self

    def within_graph(self) -> Preprocessing:
        """Return the same preprocessing, done by the model file."""
        return replace(self, in_graph=True)


def write_preprocessing(preprocessing: Preprocessing) -> str:
    """Return the JSON; what has its default is omitted."""
    resize = preprocessing.resize
    entry: dict[str, Any] = {
        "resize": None if resize is None else vars(resize),
        "crop": preprocessing.crop,
        "mean": preprocessing.mean,
        "std": preprocessing.std,
        "labels": preprocessing.labels,
        "in_graph": preprocessing.in_graph,
    }
    return json.dumps({key: value for key, value in entry.items() if value}, sort_keys=True)


def read_preprocessing(text: str, where: str) -> Preprocessing:
    """Return the preprocessing of the JSON; a missing key has its default.

    Args:
        text: The JSON.
        where: What it is, for the message: ``the metadata entry nystra.preprocessing``.

    Raises:
        NystraError: It is not of that form, a key is unknown, or a number or text is out of range.
    """
    if len(text) > _LONGEST_TEXT:
        raise NystraError(f"{where} has {len(text)} characters: it is damaged")
    entry = require_keys(parse_json(text, where), where, _READERS)
    values = {key: _READERS[key](f"{where}, {key},", value) for key, value in entry.items()}
    return Preprocessing(**values)


def _resize(where: str, value: Any) -> Resize:
    stem = where.removesuffix(",")
    entry = require_keys(value, stem, _RESIZE_READERS, ["sides"])
    return Resize(
        **{key: _RESIZE_READERS[key](f"{stem}.{key},", part) for key, part in entry.items()}
    )


def _sides(where: str, value: Any) -> tuple[int, ...]:
    if isinstance(value, list) and len(value) in (1, 2) and all(map(_is_side, value)):
        return tuple(value)
    raise _refusal(where, value, f"one or two whole numbers from 1 to {_LARGEST_SIDE}")


def _crop(where: str, value: Any) -> tuple[int, int]:
    sides = _sides(where, value)
    if len(sides) != 2:
        raise _refusal(where, value, "height and width")
    return sides[0], sides[1]


def _values(where: str, value: Any) -> tuple[float, ...]:
    if isinstance(value, list) and len(value) <= _MAX_CHANNELS and all(map(_is_value, value)):
        return tuple(map(float, value))
    raise _refusal(where, value, f"at most {_MAX_CHANNELS} numbers up to {_LARGEST_VALUE:g}")


def _labels(where: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, list) and len(value) <= _MAX_LABELS:
        return tuple(_text(where, label) for label in value)
    raise _refusal(where, value, f"a list of at most {_MAX_LABELS} strings")


def _text(where: str, value: Any) -> str:
    if isinstance(value, str) and 0 < len(value) <= _LONGEST_LABEL:
        return value
    raise _refusal(where, value, f"a string of 1 to {_LONGEST_LABEL} characters")


def _truth(where: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _refusal(where, value, "true or false")


_RESIZE_READERS: dict[str, Callable[[str, Any], Any]] = {
    "sides": _sides,
    "filter": _text,
    "antialias": _truth,
}

_READERS: dict[str, Callable[[str, Any], Any]] = {
    "resize": _resize,
    "crop": _crop,
    "mean": _values,
    "std": _values,
    "labels": _labels,
    "in_graph": _truth,
}


def _is_side(value: Any) -> bool:
    return is_whole(value) and 1 <= value <= _LARGEST_SIDE


def _is_value(value: Any) -> bool:
    return is_number(value) and abs(value) <= _LARGEST_VALUE


def _refusal(where: str, value: Any, expected: str) -> NystraError:
    return NystraError(f"{where} is {quote(value)}, expected {expected}")
