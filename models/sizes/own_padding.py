"""Padding that a network does by itself, detected, so that it can be done in front of it.

A network that pads to its windows inside computes the padding from the image's sides, and a
tracer cannot see that what comes out is a multiple. Padded before by the same rule there is
nothing left to pad, and every size can be traced. The rule is not stated anywhere: it is found by
handing the network small images and looking at what its first layer is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from torch import Tensor, nn

from ...core.ports.examples import example_arrays
from ...core.ports.port import Port, image_size
from .borders import BORDERS, Sides
from .padded_network import Call

_FIRST = 129  # the first side that is tried: larger than what is mirrored at any side of it
_REACH = 129  # how many sides are tried, twice the largest multiple that is found
_JUMPS = 3  # what is seen so often is the rule


def own_sides(network: nn.Module, call: Call, ports: Sequence[Port]) -> Sides:
    """Return how a network pads by itself; a multiple of 1 where it does not, or by no known rule.

    Args:
        network: In evaluation mode.
        call: (network, inputs) -> output.
        ports: Its inputs, of free height and width.
    """
    arrays = example_arrays(ports, image_size(2 * _FIRST, _FIRST))
    inputs = [torch.from_numpy(array) for array in arrays.values()]

    def first(rows: int, sides: Sides | None = None) -> Tensor | None:
        cut = [image[..., :rows, :] for image in inputs]
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


def _first_map(network: nn.Module, call: Call, inputs: Sequence[Tensor]) -> Tensor | None:
    """Return what the first layer that takes a map is given; None if none is reached."""
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
