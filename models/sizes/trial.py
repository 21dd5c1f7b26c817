"""Runs a network to determine the sizes that it supports."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeAlias

import torch
from torch import Tensor

from ...core.errors import UnsupportedModelError, foreign_reason
from ...core.ports.examples import example_arrays
from ...core.ports.port import Port, image_size
from .calls import ONE_BY_ONE, batch_fault, random_state, refuse_kept_state
from .given import GivenNetwork
from .padded_network import PaddedNetwork, call_plainly, in_order

Outcome: TypeAlias = tuple[Tensor, ...]

_LARGEST_MULTIPLE = 128
_MINIMUMS = (2, 4, 8, 16, 32, 64)  # sides to try if a network without a stated minimum fails at 1


@dataclass(frozen=True)
class Stated:
    """The stated size limits of a network, before it is run.

    Attributes:
        inputs: The inputs of the network, with free height and width.
        minimum: Smallest side that it is declared to accept, in pixels.
        works: Height and width that work, if some are known.
        square: It is declared to accept only squares.
        source: Name of the network, for messages.
        by: The source of these statements, named in warnings about missing ones; "": none.
    """

    inputs: tuple[Port, ...]
    minimum: int = 0
    works: tuple[int, int] | None = None
    square: bool = False
    source: str = ""
    by: str = ""

    def describe_limit(self, text: str) -> str:
        """Return the sentence on a measured limit that should have been stated."""
        return f"{text}, which {self.by} does not state" if self.by else text


@dataclass(frozen=True)
class Trial:
    """The result of a trial.

    Attributes:
        network: Padded to the multiple that it needs.
        minimum: Smallest supported side, in pixels.
        fixed: The only supported height and width, or None.
        single: It supports a batch of 1 only.
        warnings: Measured limits that are not stated, one sentence each.
    """

    network: PaddedNetwork
    minimum: int = 1
    fixed: tuple[int, int] | None = None
    single: bool = False
    warnings: tuple[str, ...] = ()

    def measure_inputs(self, inputs: Sequence[Port]) -> tuple[Port, ...]:
        """Return the inputs of the network with the multiple and the lengths that it needs."""
        fixed = {} if self.fixed is None else image_size(*self.fixed)
        if self.single:
            fixed["batch"] = 1
        multiple = self.network.sides.multiple
        ports = []
        for port in inputs:
            own = {axis: fixed[axis] for axis in port.axes if axis in fixed}
            multiple_of_port = multiple if port.has_sides else port.multiple
            lengths = {**port.lengths, **own}
            ports.append(replace(port, lengths=lengths, multiple=multiple_of_port))
        return tuple(ports)


def try_sizes(network: PaddedNetwork, stated: Stated) -> Trial:
    """Run a network at odd sizes, and return the supported ones.

    Args:
        network: The network, padded as stated.
        stated: The stated limits.

    Raises:
        UnsupportedModelError: It fails at every size, returns other outputs than stated, or is not
            deterministic.
    """
    initial, lowest = network.sides.multiple, network.sides.minimum
    minimum = max(stated.minimum, lowest)
    start = lowest if minimum <= initial else minimum
    first = ""
    for multiple in _multiples(initial):
        candidate = network.pad_to(multiple)
        sizes: Sequence[tuple[int, int]] = _sizes(minimum, multiple, square=stated.square)
        outcomes = [_outcome(candidate, stated.inputs, *size) for size in sizes]
        if multiple != initial:  # a cut result that is long enough says nothing of the multiple
            padded = candidate.sides.enlarge(sizes[0])
            outcomes.append(_outcome(candidate, stated.inputs, *padded))
        faults = [outcome for outcome in outcomes if isinstance(outcome, str)]
        if not faults and multiple == initial:
            return _measure(candidate, stated, start, sizes, initial, outcomes[0])
        if not faults:
            candidate, sizes = _find_least(candidate, stated, sizes, initial)
            outcome = _outcome(candidate, stated.inputs, *sizes[0])
            return _measure(candidate, stated, start, sizes, initial, outcome)
        first = first or faults[0]
    size = stated.works or (max(minimum, initial),) * 2
    outcome = _outcome(network, stated.inputs, *size)
    if not isinstance(outcome, str):
        _refuse_infinite(outcome, stated)
        refuse_state(network, stated, [size])
        refuse_random(network, stated, size, outcome)
        single, reason = is_single(network, stated, size)
        text = f"it takes {size[0]}x{size[1]} only: {first}"
        return Trial(network, start, size, single, (text, *reason))
    raise UnsupportedModelError(f"{stated.source}: the network {first}; see docs/own.md")


def _find_least(
    network: PaddedNetwork, stated: Stated, sizes: Sequence[tuple[int, int]], initial: int
) -> tuple[PaddedNetwork, Sequence[tuple[int, int]]]:
    """Return a network that is padded no more than it needs: what it takes, it gets as it is.

    A multiple that small sides need may be a minimum, and one side may need less than the other.

    Args:
        network: It is padded to a multiple that was found.
        stated: The stated limits.
        sizes: Heights and widths that work.
        initial: The stated multiple, which stays.

    Returns:
        The network, and sizes that work.
    """

    def works(candidate: PaddedNetwork, sizes: Sequence[tuple[int, int]]) -> bool:
        outcomes = (
            _outcome(candidate, stated.inputs, *size)
            for size in (candidate.sides.enlarge(sizes[0]), *sizes)
        )
        return not any(isinstance(outcome, str) for outcome in outcomes)

    multiple = network.sides.multiple
    smallest = max(max(network.sides.enlarge(size)) for size in sizes)
    while multiple % (2 * initial) == 0:
        half = network.pad_to(multiple // 2)
        larger = _sizes(max(smallest, stated.minimum), multiple // 2, square=stated.square)
        if not works(half, larger):
            break
        network, sizes, multiple = half, larger, multiple // 2
    if stated.square or multiple == initial:
        return network, sizes
    each = [multiple, multiple]
    for axis, factor in product((0, 1), _factor(multiple // initial)):
        less = list(each)
        less[axis] //= factor
        candidate = network.pad_to(multiple, tuple(less))
        if works(candidate, _list_sizes(network.sides.enlarge(sizes[0]), axis, less, factor)):
            network, each = candidate, less
    return network, sizes


def _list_sizes(
    size: tuple[int, int], axis: int, multiples: Sequence[int], factor: int
) -> list[tuple[int, int]]:
    """Return two sizes, one side of which is no multiple of ``factor`` times its multiple."""
    fewest = -(-size[axis] // multiples[axis])
    counts = [count for count in range(fewest, fewest + 4) if count % factor][:2]
    sides = [count * multiples[axis] for count in counts]
    return [(side, size[1]) if axis == 0 else (size[0], side) for side in sides]


def _factor(number: int) -> list[int]:
    """Return the prime factors of a number."""
    factors = []
    for prime in range(2, number + 1):
        while number % prime == 0:
            factors.append(prime)
            number //= prime
    return factors


def _measure(
    network: PaddedNetwork,
    stated: Stated,
    start: int,
    sizes: Sequence[tuple[int, int]],
    multiple: int,
    first: Outcome | str,
) -> Trial:
    """Return the supported sizes of a network that runs at odd sizes; ``multiple`` was stated.

    ``first`` is what it returned for the first of ``sizes``, which work. It must be deterministic.
    """
    notes: tuple[str, ...] = ()
    _refuse_infinite(first, stated)
    if network.sides.multiple != multiple:
        needed = f"it needs {network.sides.describe()}"
        notes = (f"{stated.describe_limit(needed)}; they are padded to it",)
    if (minimum := network.sides.minimum) > 1:
        notes += (stated.describe_limit(f"it pads sides of less than {minimum} pixels otherwise"),)
    smallest, tested, outcome = start, sizes[0], first
    if not stated.square:
        smallest, outcome = _smallest_side(network, stated.inputs, start, sizes)
        tested = (smallest, max(smallest, sizes[0][0]))
    refuse_state(network, stated, [tested, sizes[-1]])
    refuse_random(network, stated, tested, outcome)
    single, reason = is_single(network, stated, tested)
    notes += reason
    if stated.square:
        return Trial(network, start, sizes[0], single, notes)
    if smallest > start:
        notes += (stated.describe_limit(f"it needs sides of at least {smallest} pixels"),)
    return Trial(network, smallest, None, single, notes)


def is_single(
    network: PaddedNetwork, stated: Stated, size: tuple[int, ...]
) -> tuple[bool, tuple[str, ...]]:
    """Return whether a network has to be limited to one image at a time, and the reason."""
    if "batch" in stated.inputs[0].lengths:
        return False, ()
    fault = batch_fault(_wrap_given(network, stated), stated.inputs, size)
    if fault == ONE_BY_ONE and stated.by:  # a trace replaces such functions of known networks
        fault = ""
    return bool(fault), (f"it takes a batch of 1 only: {fault}",) if fault else ()


def _wrap_given(network: PaddedNetwork, stated: Stated) -> GivenNetwork:
    """Return what a network does at any size, in calls that do not depend on one another."""
    state = None
    if network.given is not None:
        state = network.given.state
        inner = network.given.fresh()
        network = PaddedNetwork(inner, network.sides, network.outputs, network.given.call)
    return GivenNetwork(network, call_plainly, stated.inputs, network.outputs, state)


def refuse_state(network: PaddedNetwork, stated: Stated, sizes: Sequence[tuple[int, ...]]) -> None:
    """Raise `UnsupportedModelError` if results depend on earlier calls, as `refuse_kept_state`."""
    refuse_kept_state(_wrap_given(network, stated), stated.inputs, sizes, stated.source)


def _refuse_infinite(outcome: Outcome | str, stated: Stated) -> None:
    """Raise if a network returns NaN or infinity for noise: nothing can be compared with it."""
    if not all(isinstance(tensor, str) or tensor.isfinite().all() for tensor in outcome):
        raise UnsupportedModelError(
            f"{stated.source}: the network returns NaN or infinite values for an image of noise, "
            "so an exported file could not be compared with it"
        )


def refuse_random(
    network: PaddedNetwork,
    stated: Stated,
    size: tuple[int, ...],
    earlier: Outcome | str = "",
) -> None:
    """Raise if two runs of one image differ: a file cannot be compared with such a network.

    Args:
        network: The network.
        stated: Its inputs, and its source for the message.
        size: Height and width that it takes.
        earlier: What it returned for this size; a text if it was not run.

    Raises:
        UnsupportedModelError: They differ.
    """
    before = random_state()
    again = _run(network, stated.inputs, 1, *size)
    if random_state() != before:
        raise UnsupportedModelError(
            f"{stated.source}: the output of the network is not deterministic: it draws random "
            "numbers in evaluation mode, so an exported file could not be validated"
        )
    first = _run(network, stated.inputs, 1, *size) if isinstance(earlier, str) else earlier
    one, other = first[0], again[0]
    if not torch.allclose(one, other, rtol=1e-5, atol=1e-5):
        difference = float((one - other).abs().max())
        raise UnsupportedModelError(
            f"{stated.source}: the output of the network is not deterministic: two runs on the "
            f"same image differ by {difference:.0e}, so an exported file could not be validated"
        )


def _smallest_side(
    network: PaddedNetwork, inputs: Sequence[Port], stated: int, sizes: Sequence[tuple[int, int]]
) -> tuple[int, Outcome | str]:
    """Return the smallest side that works, of those that are tried; ``sizes`` work.

    Returns:
        The side, and what the network returned for it and a width that works; "" if no side of
        those works.
    """
    works = sizes[0][0]
    for side in (stated, *(side for side in _MINIMUMS if stated < side < works), works):
        both = {(side, works), (works, side)}
        returned = {size: _outcome(network, inputs, *size) for size in both}
        if not any(isinstance(outcome, str) for outcome in returned.values()):
            return side, returned[side, works]
    return max(map(max, sizes)), ""


def _multiples(stated: int) -> list[int]:
    every = range(2 * stated, _LARGEST_MULTIPLE + 1, stated)
    doubles = [m for m in every if (m // stated).bit_count() == 1]
    return [stated, *doubles, *(m for m in every if m not in doubles)]


def _sizes(minimum: int, multiple: int, *, square: bool) -> list[tuple[int, int]]:
    """Return heights and widths to try: odd, and not square unless required.

    Padded to the multiple, they have no larger common multiple. The first size is small: networks
    with a large multiple take long.
    """
    base = max(minimum, multiple)
    if square:
        return [(base, base)]
    base = max(base, 16)
    sides = [max(minimum, 16) + 3, base + base // 2 + 1, base + base // 2 + 5, base + 1]
    if math.gcd(*(-(-side // multiple) for side in sides)) > 1:
        sides[3] += multiple
    return [(sides[0], sides[1]), (sides[2], sides[3])]


def _outcome(
    network: PaddedNetwork, ports: Sequence[Port], height: int, width: int, batch: int = 1
) -> Outcome | str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            returned = _run(network, ports, batch, height, width)
    except UnsupportedModelError:  # its outputs are wrong at any size
        raise
    except Exception as error:  # noqa: BLE001 - after any error the size counts as not supported
        reason = foreign_reason(error, 200)
        return f"fails at {height}x{width}: {reason}"
    for tensor, port in zip(returned, network.outputs, strict=True):
        expected = _shape(port, batch, height, width)
        if tuple(tensor.shape) != expected:
            shape = tuple(tensor.shape)
            return f"returns the shape {shape} at {height}x{width}, expected {expected}"
    return returned


def _shape(output: Port, batch: int, height: int, width: int) -> tuple[int, ...]:
    size = {"batch": batch} | image_size(height * output.multiple, width * output.multiple)
    return output.shape({axis: size[axis] for axis in output.axes if axis in size})


def _run(
    network: PaddedNetwork, ports: Sequence[Port], batch: int, height: int, width: int
) -> Outcome:
    arrays = example_arrays(ports, {"batch": batch} | image_size(height, width))
    with torch.no_grad():
        returned = network(*(torch.from_numpy(array) for array in arrays.values()))
    return in_order(returned, network.outputs)
