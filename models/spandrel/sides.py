"""Padding that a third-party network does by itself, detected, and done outside of it.

A network that pads to its windows inside computes the padding from the picture's sides, and a
tracer cannot see that what comes out is a multiple. Padded before by the same rule there is
nothing left to pad, and every size can be traced. The rule is not stated anywhere: it is found by
handing the network small pictures and looking at what its first layer is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..layers.padding import reflect_index

_FIRST = 129  # the first side that is tried: larger than what is mirrored at any side of it
_REACH = 129  # how many sides are tried, twice the largest multiple that is found
_JUMPS = 3  # what is seen so often is the rule


@dataclass(frozen=True)
class Sides:
    """How a picture is padded at the bottom and the right, and to what.

    Attributes:
        multiple: Sides become multiples of it, in pixels.
        border: Name of a rule in `BORDERS`.
    """

    multiple: int = 1
    border: str = "reflect"

    def pad(self, image: Tensor) -> Tensor:
        """Return an image (B, C, H, W) padded to the multiple; H and W may be symbolic."""
        if self.multiple == 1:
            return image
        for axis in (2, 3):
            index, inside = BORDERS[self.border](image.shape[axis], self.multiple)
            image = image.index_select(axis, index.to(image.device))
            if inside is not None:
                shape = (-1, 1) if axis == 2 else (-1,)
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


def own_sides(network: nn.Module, call: Callable[..., Tensor], channels: Sequence[int]) -> Sides:
    """Return how a network pads by itself; a multiple of 1 where it does not, or by no known rule.

    Args:
        network: In evaluation mode.
        call: (network, inputs) -> output.
        channels: Of each input.
    """
    random = torch.Generator().manual_seed(0)
    inputs = [torch.rand(1, count, 2 * _FIRST, _FIRST, generator=random) for count in channels]

    def first(rows: int, sides: Sides | None = None) -> Tensor | None:
        cut = [image[:, :, :rows] for image in inputs]
        return _first_map(network, call, cut if sides is None else [*map(sides.pad, cut)])

    jumps: list[int] = []  # sides that are padded to less than the next one
    height = 0
    for rows in range(_FIRST, _FIRST + _REACH):
        seen = first(rows)
        if seen is None:
            return Sides()
        if height and seen.shape[2] != height:
            jumps.append(rows - 1)
        height = seen.shape[2]
        if len(jumps) == _JUMPS:
            break
    multiple = math.gcd(*(b - a for a, b in pairwise(jumps)))
    if multiple < 2 or jumps[0] % multiple != 0:
        return Sides()
    rows = jumps[0] + multiple // 2
    expected = first(rows)
    for border in BORDERS:
        sides = Sides(multiple, border)
        padded = first(rows, sides)
        if padded is not None and expected is not None and torch.equal(padded, expected):
            return sides
    return Sides()  # by a rule that is not known: it has to do it itself


class _Reached(Exception):  # noqa: N818 - no error: it ends a run early
    """A layer was given a map."""

    def __init__(self, given: Tensor) -> None:
        super().__init__()
        self.given = given


def _first_map(
    network: nn.Module, call: Callable[..., Tensor], inputs: Sequence[Tensor]
) -> Tensor | None:
    """Return what the first layer that takes a map is given; None where none is reached."""
    with torch.no_grad(), _stopping(network):
        try:
            call(network, *inputs)
        except _Reached as reached:
            return reached.given
        except Exception:  # a size that the network does not take
            return None
    return None


@contextmanager
def _stopping(network: nn.Module) -> Iterator[None]:
    def stop(_: nn.Module, arguments: tuple[object, ...]) -> None:
        if arguments and isinstance(arguments[0], Tensor) and arguments[0].dim() == 4:
            raise _Reached(arguments[0].clone())

    leaves = [module for module in network.modules() if not any(module.children())]
    hooks = [module.register_forward_pre_hook(stop) for module in leaves]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
