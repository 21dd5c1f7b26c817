"""Padding of images to a multiple that a network needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..layers.padding import reflect_index


@dataclass(frozen=True)
class Sides:
    """The padding of an image at the bottom and right.

    Attributes:
        multiple: Sides become multiples of it, in pixels.
        border: Name of a rule in `BORDERS`.
        each: Multiples of the height and of the width where one of them is less; (): both are the
            same.
        minimum: The smallest side that a network pads by this rule itself, in pixels.
    """

    multiple: int = 1
    border: str = "reflect"
    each: tuple[int, ...] = ()
    minimum: int = 1

    def _multiples(self) -> tuple[int, ...]:
        return self.each or (self.multiple, self.multiple)

    def enlarge(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return a height and width that need no padding."""
        height, width = (-(-side // n) * n for side, n in zip(size, self._multiples(), strict=True))
        return height, width

    def describe(self) -> str:
        """Return what they have to be, for a message."""
        if not self.each:
            return f"sides that are multiples of {self.multiple}"
        named = zip(("a height", "a width"), self.each, strict=True)
        texts = [f"{name} that is a multiple of {n}" for name, n in named if n > 1]
        return " and ".join(texts)

    def pad(self, image: Tensor) -> Tensor:
        """Return an image (..., H, W) padded to the multiple; H and W may be symbolic."""
        if self.multiple == 1:
            return image
        axes = image.dim() - 2, image.dim() - 1
        for axis, multiple in zip(axes, self._multiples(), strict=True):
            if multiple == 1:
                continue
            index, inside = BORDERS[self.border](image.shape[axis], multiple)
            image = image.index_select(axis, index.to(image.device))
            if inside is not None:
                shape = (-1, 1) if axis == image.dim() - 2 else (-1,)
                image = image * inside.to(image).reshape(shape)
        return image


def _reflect(size: int, multiple: int) -> tuple[Tensor, Tensor | None]:
    return reflect_index(size, multiple), None


def _symmetric(size: int, multiple: int) -> tuple[Tensor, Tensor | None]:
    position = torch.arange((size + multiple - 1) // multiple * multiple) % (2 * size)
    return torch.minimum(position, 2 * size - 1 - position), None


def _replicate(size: int, multiple: int) -> tuple[Tensor, Tensor | None]:
    position = torch.arange((size + multiple - 1) // multiple * multiple)
    return position.clamp(max=size - 1), None


def _zero(size: int, multiple: int) -> tuple[Tensor, Tensor | None]:
    position = torch.arange((size + multiple - 1) // multiple * multiple)
    return position.clamp(max=size - 1), position < size


BORDERS: dict[str, Callable[[int, int], tuple[Tensor, Tensor | None]]] = {
    "reflect": _reflect,
    "zero": _zero,
    "symmetric": _symmetric,
    "replicate": _replicate,
}
"""Name -> (size, multiple) to the index of the rows to take, and which of them count, or None."""
