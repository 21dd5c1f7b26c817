"""The options that are sizes of images: height x width, in pixels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..option import Option
from ..option_kinds import parse_whole, require_count
from .port import SIDES, Size, image_size, size_text

MAX_PIXELS = 1 << 28
"""In float32 3 GiB, with three channels."""


@dataclass(frozen=True)
class ImageSize(Option):
    """The size of an image; a text says ``64x96``, height x width."""

    _expected: ClassVar[str] = "a height x width such as 128x96, each 1 or more"
    _placeholder: ClassVar[str] = "HxW"

    def read(self, name: str, text: str) -> Size:
        """Return the size of a text."""
        try:
            height, width = map(parse_whole, text.split("x"))
        except ValueError:
            raise self.make_error(name, text) from None
        if min(height, width) < 1:
            raise self.make_error(name, text)
        return self._convert(name, image_size(height, width))

    def show(self, value: Size) -> str:
        """Return ``64x96``."""
        return size_text(value)

    def _convert(self, name: str, value: Any) -> Size:
        sides = isinstance(value, Mapping) and value.keys() == set(SIDES)
        if not sides or not all(type(side) is int and side > 0 for side in value.values()):
            raise self.make_error(name, value)
        require_count(name, size_text(value), math.prod(value.values()), "pixels", MAX_PIXELS)
        return dict(value)


@dataclass(frozen=True)
class ImageSizes(Option):
    """Sizes of images, as a tuple; a text says ``128x128,64x96``."""

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        return f"{_SIZE.expected}, or a comma-separated list of them"

    _placeholder: ClassVar[str] = "HxW,..."
    is_list: ClassVar[bool] = True

    def read(self, name: str, text: str) -> tuple[Size, ...]:
        """Return the sizes of a text."""
        return tuple(_SIZE.read(name, part) for part in text.split(","))

    def show(self, value: Sequence[Size]) -> str:
        """Return ``128x128,64x96``."""
        return ",".join(map(_SIZE.show, value))

    def _convert(self, name: str, value: Any) -> tuple[Size, ...]:
        if not isinstance(value, (list, tuple)) or not value:
            raise self.make_error(name, value)
        return tuple(_SIZE.accept(name, size) for size in value)


_SIZE = ImageSize({}, "")
