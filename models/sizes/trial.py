"""Runs a network to find the sizes that it really takes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...core.errors import UnsupportedModelError
from ...core.ports.examples import example_arrays
from ...core.ports.port import Port, image_size
from .padded_network import PaddedNetwork, in_order

_LARGEST_MULTIPLE = 128
_LEAST = (2, 4, 8, 16)  # sides that are tried where a network of no stated minimum fails at 1


@dataclass(frozen=True)
class Stated:
    """What is known of the sizes of a network before it is run.

    Attributes:
        inputs: Of the network, height and width free.
        minimum: Smallest side that it is declared to accept, in pixels.
        works: A side that it takes, where one is known.
        square: It is declared to accept only squares.
        source: Name of the network, for messages.
        by: Who says so; what that one leaves out becomes a warning. "" where nobody says anything.
    """

    inputs: tuple[Port, ...]
    minimum: int = 0
    works: int | None = None
    square: bool = False
    source: str = ""
    by: str = ""

    def found(self, text: str) -> str:
        """Return the sentence that something was found which should have been stated."""
        return f"{text}, which {self.by} does not state" if self.by else text


@dataclass(frozen=True)
class Trial:
    """What came of it.

    Attributes:
        network: Padded to the multiple that it needs.
        minimum: Smallest side that it takes, in pixels.
        fixed: The only height and width it takes, or None.
        single: It takes one image at a time.
        warnings: What was found and is not stated, one sentence each.
    """

    network: PaddedNetwork
    minimum: int = 1
    fixed: tuple[int, int] | None = None
    single: bool = False
    warnings: tuple[str, ...] = ()

    def measured(self, inputs: Sequence[Port]) -> tuple[Port, ...]:
        """Return the inputs of the network with the multiple and the lengths that it needs."""
        fixed = {} if self.fixed is None else image_size(*self.fixed)
        if self.single:
            fixed["batch"] = 1
        multiple = self.network.sides.multiple
        return tuple(
            replace(port, lengths={**port.lengths, **fixed}, multiple=multiple) for port in inputs
        )


def tried(network: PaddedNetwork, stated: Stated) -> Trial:
    """Run a network at sizes that are multiples of nothing, and return what it takes.

    Args:
        network: As it is stated to be.
        stated: What else is known.

    Raises:
        UnsupportedModelError: It fails at every size, gives something else than its outputs, or
            never the same.
    """
    known, minimum = network.sides.multiple, stated.minimum
    least = 1 if minimum <= known else minimum
    first = ""
    for multiple in _multiples(known):
        candidate = network.padded_to(multiple)
        sizes = _sizes(max(minimum, multiple), multiple, square=stated.square)
        faults = [_fault(candidate, stated.inputs, *size) for size in sizes]
        if not any(faults):
            _refuse_random(candidate, stated, sizes[0])
            return _measured(candidate, stated, least, sizes, known)
        first = first or next(filter(None, faults))
    side = stated.works or max(minimum, known)
    if not _fault(network, stated.inputs, side, side):
        _refuse_random(network, stated, (side, side))
        single = bool(_fault(network, stated.inputs, side, side, batch=2))
        text = f"it takes {side}x{side} only: {first}"
        return Trial(network, least, (side, side), single, (text,))
    raise UnsupportedModelError(f"{stated.source}: the network {first}")


def _measured(
    network: PaddedNetwork,
    stated: Stated,
    least: int,
    sizes: Sequence[tuple[int, int]],
    multiple: int,
) -> Trial:
    """Return what a network takes that runs at sizes of any kind; ``multiple`` was stated."""
    notes: tuple[str, ...] = ()
    if network.sides.multiple != multiple:
        needed = f"it needs sides that are multiples of {network.sides.multiple}"
        notes = (f"{stated.found(needed)}; they are padded to it",)
    single = bool(_fault(network, stated.inputs, *sizes[0], batch=2))
    if single:
        notes += ("it takes a batch of 1 only: a batch of 2 fails",)
    if stated.square:
        return Trial(network, least, sizes[0], single, notes)
    smallest = _least(network, stated.inputs, least, sizes[0][0])
    if smallest > least:
        notes += (stated.found(f"it needs sides of at least {smallest} pixels"),)
    return Trial(network, smallest, None, single, notes)


def _refuse_random(network: PaddedNetwork, stated: Stated, size: tuple[int, int]) -> None:
    """Raise where two runs of one image differ: no file could be compared with such a network."""
    inputs = _examples(stated.inputs, 1, *size)
    with torch.no_grad():
        one, other = (in_order(network(*inputs), network.outputs)[0] for _ in range(2))
    if not torch.allclose(one, other, rtol=1e-5, atol=1e-5):
        most = float((one - other).abs().max())
        raise UnsupportedModelError(
            f"{stated.source}: the output of the network is not deterministic: two runs on the "
            f"same image differ by {most:.0e}, so an exported file could not be validated"
        )


def _least(network: PaddedNetwork, inputs: Sequence[Port], stated: int, works: int) -> int:
    """Return the smallest side that is taken, of those that are tried; ``works`` is one."""
    for side in (stated, *(side for side in _LEAST if stated < side < works)):
        if not any(_fault(network, inputs, *size) for size in ((side, works), (works, side))):
            return side
    return works


def _multiples(stated: int) -> list[int]:
    """Return the multiples to try: the stated one, its doubles, then all others of it."""
    every = range(2 * stated, _LARGEST_MULTIPLE + 1, stated)
    doubles = [m for m in every if (m // stated).bit_count() == 1]
    return [stated, *doubles, *(m for m in every if m not in doubles)]


def _sizes(least: int, multiple: int, *, square: bool) -> list[tuple[int, int]]:
    """Return heights and widths to try: odd, and not square where that is allowed.

    Padded to the multiple they have no larger one in common.
    """
    if square:
        return [(least, least)]
    base = max(least, 16)
    sides = [base + 3, base + base // 2 + 1, base + base // 2 + 5, base + 1]
    if math.gcd(*(-(-side // multiple) for side in sides)) > 1:
        sides[3] += multiple
    return [(sides[0], sides[1]), (sides[2], sides[3])]


def _fault(
    network: PaddedNetwork, ports: Sequence[Port], height: int, width: int, batch: int = 1
) -> str:
    """Return what is wrong at a size, "" where nothing is."""
    inputs = _examples(ports, batch, height, width)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            returned = in_order(network(*inputs), network.outputs)
    except UnsupportedModelError:  # it returns something else than its outputs, at any size
        raise
    except Exception as error:  # whatever it raises, it does not take this size
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        return f"fails at {height}x{width}: {reason}"
    for tensor, port in zip(returned, network.outputs, strict=True):
        expected = _shape(port, batch, height, width)
        if tuple(tensor.shape) != expected:
            found = tuple(tensor.shape)
            return f"returns the shape {found} at {height}x{width}, expected {expected}"
    return ""


def _shape(output: Port, batch: int, height: int, width: int) -> tuple[int, ...]:
    """Return the shape that an output is to have."""
    size = {"batch": batch} | image_size(height * output.multiple, width * output.multiple)
    return output.shape({axis: size[axis] for axis in output.axes if axis in size})


def _examples(ports: Sequence[Port], batch: int, height: int, width: int) -> list[Tensor]:
    size = {"batch": batch} | image_size(height, width)
    return [torch.from_numpy(array) for array in example_arrays(ports, size).values()]
