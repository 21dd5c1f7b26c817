"""Detects a network's own padding, so that it can be done in front of the network.

A network that pads to its windows computes the padding from the image's sides, and a tracer does
not know that the result is a multiple. If the image is padded before by the same rule, nothing is
left to pad, and every size can be traced. The rule is determined by running the network on small
images and inspecting the input of its first layer; `moves_in_front` shows that nothing else in the
network depends on the image or its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from ...core.ports.examples import example_arrays
from ...core.ports.port import Port, image_size
from .borders import BORDERS, Sides
from .padded_network import Call, has_sides
from .padding_proof import moves_in_front

_FIRST = 129  # the first side that is tried: larger than any mirrored border
_REACH = 129  # the number of sides that are tried, twice the largest multiple that can be found
_JUMPS = 3  # a result this frequent is the rule


def own_sides(network: nn.Module, call: Call, ports: Sequence[Port]) -> Sides:
    """Return a network's own padding; a multiple of 1 if there is none, or an unknown rule.

    Args:
        network: In evaluation mode.
        call: (network, inputs) -> output.
        ports: Its inputs, of free height and width.
    """
    arrays = example_arrays(ports, image_size(2 * _FIRST, _FIRST))
    inputs = [torch.from_numpy(array) for array in arrays.values()]

    def first(rows: int, sides: Sides | None = None) -> Tensor | None:
        cut = [image[..., :rows, :] if has_sides(image) else image for image in inputs]
        if sides is not None:
            cut = [sides.pad(image) if has_sides(image) else image for image in cut]
        return _first_map(network, call, cut)

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
            if not moves_in_front(network, call, inputs, multiple):
                return Sides()
            return replace(sides, minimum=_find_least(first, sides))
    return Sides()  # an unknown rule: the network has to pad itself


def _find_least(first: Callable[..., Tensor | None], sides: Sides) -> int:
    """Return the side from which on a network pads by a rule: it may mirror no small image."""
    for rows in reversed(range(1, sides.multiple)):
        expected = first(rows)
        if expected is None:  # it does not take this size
            continue
        padded = first(rows, sides)
        if padded is None or not torch.equal(padded, expected):
            return rows + 1
    return 1


class _Reached(Exception):  # noqa: N818 - no error: it ends a run early
    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self.tensor = tensor


def _first_map(network: nn.Module, call: Call, inputs: Sequence[Tensor]) -> Tensor | None:
    with torch.no_grad(), _stop_at_first_map(network):
        try:
            call(network, *inputs)
        except _Reached as reached:
            return reached.tensor
        except Exception:  # noqa: BLE001 - it takes no such size, which tells its multiple
            return None
    return None


@contextmanager
def _stop_at_first_map(network: nn.Module) -> Iterator[None]:
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
