"""Runs a third-party network to find the sizes that it really takes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.errors import UnsupportedModelError
from .network import ForeignNetwork
from .sides import Sides

_MULTIPLES = (2, 4, 8, 16, 32, 64, 128)
_LEAST = (2, 4, 8, 16)  # sides that are tried where a network of no stated minimum fails at 1


@dataclass(frozen=True)
class Trial:
    """What came of it.

    Attributes:
        network: Padded to the multiple that it needs.
        minimum: Smallest side that it takes, in pixels.
        fixed: The only height and width it takes, or None.
        single: It takes one picture at a time.
        warnings: What was found and is not stated, one sentence each.
    """

    network: ForeignNetwork
    minimum: int = 1
    fixed: tuple[int, int] | None = None
    single: bool = False
    warnings: tuple[str, ...] = ()


def tried(
    network: ForeignNetwork,
    channels: Sequence[int],
    outputs: int,
    minimum: int,
    *,
    square: bool,
    source: str,
) -> Trial:
    """Run a network at sizes that are no multiple of anything, and return what it takes.

    Args:
        network: As it is stated to be.
        channels: Of each input.
        outputs: Channels that the picture is to have.
        minimum: Stated smallest side.
        square: It is stated to take squares only.
        source: Name of the file, for messages.

    Raises:
        UnsupportedModelError: It fails at every size, gives no picture, or never the same one.
    """
    sides = network.sides
    least = 1 if minimum <= sides.multiple else minimum
    first = ""
    for multiple in _multiples(sides.multiple):
        candidate = ForeignNetwork(
            network.network, network.call, Sides(multiple, sides.border), network.scale
        )
        sizes = _sizes(max(minimum, multiple), square=square)
        faults = [_fault(candidate, channels, outputs, *size) for size in sizes]
        if not any(faults):
            _refuse_random(candidate, channels, sizes[0], source)
            text = f"it needs sides that are multiples of {multiple}, which spandrel does not say"
            warnings: tuple[str, ...] = ()
            if multiple != sides.multiple:
                warnings = (f"{text}; they are padded to it",)
            single = bool(_fault(candidate, channels, outputs, *sizes[0], batch=2))
            if single:
                warnings += ("it takes one picture at a time: a batch of two fails",)
            if square:
                return Trial(candidate, least, sizes[0], single, warnings)
            smallest = _least(candidate, channels, outputs, least, sizes[0][0])
            if smallest > least:
                text = f"it takes sides of {smallest} pixels and more, which spandrel does not say"
                warnings += (text,)
            return Trial(candidate, smallest, None, single, warnings)
        first = first or next(filter(None, faults))
    side = max(minimum, sides.multiple)
    if not _fault(network, channels, outputs, side, side):
        _refuse_random(network, channels, (side, side), source)
        single = bool(_fault(network, channels, outputs, side, side, batch=2))
        text = f"it takes {side}x{side} only: {first}"
        return Trial(network, least, (side, side), single, (text,))
    raise UnsupportedModelError(f"{source}: the network {first}")


def _refuse_random(
    network: ForeignNetwork, channels: Sequence[int], size: tuple[int, int], source: str
) -> None:
    """Raise where two runs of one picture differ: no file could be compared with such a network."""
    inputs = _inputs(channels, 1, *size)
    with torch.no_grad():
        first, second = network(*inputs), network(*inputs)
    if not torch.allclose(first, second, rtol=1e-5, atol=1e-5):
        most = float((first - second).abs().max())
        raise UnsupportedModelError(
            f"{source}: the network draws random numbers in every run: two runs of one picture "
            f"differ by {most:.0e}, so that no file could be compared with it"
        )


def _least(
    network: ForeignNetwork, channels: Sequence[int], outputs: int, stated: int, works: int
) -> int:
    """Return the smallest side that is taken, of those that are tried; ``works`` is one."""
    for side in (stated, *(side for side in _LEAST if stated < side < works)):
        sizes = ((side, works), (works, side))
        if not any(_fault(network, channels, outputs, *size) for size in sizes):
            return side
    return works


def _multiples(stated: int) -> list[int]:
    return [stated, *(m for m in _MULTIPLES if m > stated and math.lcm(m, stated) == m)]


def _sizes(least: int, *, square: bool) -> list[tuple[int, int]]:
    """Return heights and widths to try: odd, and not square where that is allowed."""
    if square:
        return [(least, least)]
    base = max(least, 16)
    return [(base + 3, base + base // 2 + 1), (base + base // 2 + 5, base + 1)]


def _fault(
    network: ForeignNetwork,
    channels: Sequence[int],
    outputs: int,
    height: int,
    width: int,
    batch: int = 1,
) -> str:
    """Return what is wrong at a size, "" where nothing is."""
    inputs = _inputs(channels, batch, height, width)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            output = network(*inputs)
    except Exception as error:  # whatever it raises, it does not take this size
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        return f"fails at {height}x{width}: {reason}"
    expected = (batch, outputs, height * network.scale, width * network.scale)
    if not isinstance(output, Tensor):
        return f"gives a {type(output).__name__} at {height}x{width}, no picture"
    if tuple(output.shape) != expected:
        return f"gives the shape {tuple(output.shape)} at {height}x{width}, expected {expected}"
    return ""


def _inputs(channels: Sequence[int], batch: int, height: int, width: int) -> list[Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.rand(batch, count, height, width, generator=random) for count in channels]
