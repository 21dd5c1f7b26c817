"""Inputs that tell a network from another one: sizes around its steps, and images of every kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from torch import nn

from ...core.ports.pixels import to_range
from ...core.ports.port import SIDES, UNIT, Size
from ...models.facts import Facts
from ...models.registry import is_own
from ...runtime.images.images import read_image
from ..attention.cost import count_quadratic, count_weights
from .file_type import ARCHITECTURE
from .images import Feeds, Pixels, feeds_of, photographs

_LONG = 131
"""A side above 128, which is no multiple of a window."""

_BATCH = 3
"""Images of a batch; each is compared with a run of its own."""

_SMALL = 1_000_000
"""Number of parameters of a network below which all comparisons are of several images."""

_LARGE_STEP = 48
"""Step from which on images have one step more or less only."""

_OPERATIONS = 1.6e10
"""Most operations of all comparisons together, which take 1 to 2 seconds.

A network has one for each parameter and pixel, and those of attention between all its pixels.
"""

_FEWEST = 3
"""Comparisons that are made in any case, of a network that is another module than the given one."""


@dataclass(frozen=True)
class Telling:
    """Inputs of a comparison.

    Attributes:
        feeds: By name, of one or several images.
        content: What is on the images, for messages.
    """

    feeds: Feeds
    content: str


def choose_telling_inputs(
    network: nn.Module, facts: Facts, *, photographs_only: bool, changed: bool
) -> list[Telling]:
    """Return `find_telling_inputs` of a network: its step, weights and attention count.

    Args:
        network: The network.
        facts: Its facts.
        photographs_only: As of `find_telling_inputs`.
        changed: As of `find_telling_inputs`.
    """
    parameters = count_weights(network)
    return find_telling_inputs(
        facts,
        max((facts.size_multiple, *(facts.window or ()))),
        parameters,
        quadratic=count_quadratic(network, facts) if parameters < _SMALL else 0.0,
        photographs_only=photographs_only,
        changed=changed,
    )


def find_telling_inputs(
    facts: Facts,
    step: int,
    parameters: int,
    *,
    quadratic: float = 0.0,
    photographs_only: bool,
    changed: bool,
) -> list[Telling]:
    """Return inputs for the comparison of a network with another form of it.

    Sizes are the smallest one, multiples of the step and not, odd, square and not, just below and
    above the step and its double, and above 128. Images are photographs, black, white, with
    saturated parts, a checkerboard, and where no range is stated with values outside of it.

    Args:
        facts: Facts of the network, maybe of a fixed size.
        step: The multiple that it pads to, or its window, in pixels.
        parameters: Its number of weights: large networks are compared on fewer pixels.
        quadratic: b, if attention between all n pixels takes b n^2 operations: such networks too.
        photographs_only: Photographs alone, for networks that select by comparing values.
        changed: Whether the network that is traced is another module than the given one. If not,
            the references are of it, at sizes around its step.
    """
    batch = 1 if "batch" in facts.inputs[0].lengths else _BATCH
    kinds = _kinds(facts, photographs_only=photographs_only)
    inputs: list[Telling] = []
    operations = 0.0
    fewest = _FEWEST if changed else _FEWEST - 1
    sides = _sides(facts, step, changed=changed)
    for index, (height, width) in enumerate(sides):
        size = facts.size(height, width)
        several = batch if index == 0 or parameters < _SMALL else 1
        padded = [-(-size[axis] // 8) * 8 for axis in SIDES]
        pixels = math.prod(padded)
        operations += several * (parameters * pixels + quadratic * pixels**2)
        if index >= fewest and operations > _OPERATIONS:
            break
        at = index * _BATCH
        numbers = [(at + number) % len(kinds) for number in range(several)]
        names = [kinds[number] for number in numbers]
        images = [_feeds(facts, make, size) for _, make in names]
        joined = {}
        for name in images[0]:
            joined[name] = np.concatenate([feeds[name] for feeds in images])
        content = ", ".join(name for name, _ in names)
        inputs.append(Telling(joined, content))
    return inputs


def _sides(facts: Facts, step: int, *, changed: bool) -> Iterator[tuple[int, int]]:
    """Yield heights and widths, the most telling ones first."""
    if facts.sides is not None:
        for _ in range(_BATCH):
            yield facts.sides["height"], facts.sides["width"]
        return
    minimum = max(1, facts.size_minimum)
    step = max(step, 8)
    short = max(minimum, step // 2 + 1)
    double = step if step >= _LARGE_STEP else 2 * step
    short_of_step, long = (
        (max(minimum, step - 1), max(minimum, double + 1)),
        (max(minimum, _LONG), short),
    )
    yield minimum, minimum
    yield from (short_of_step, long) if changed else (long, short_of_step)
    yield max(minimum, double), max(minimum, double)
    yield max(minimum, double - 1), max(minimum, step + 1)
    yield short, max(minimum, _LONG + 6)
    yield max(minimum, 128), short
    yield max(minimum, 64), max(minimum, 64)
    yield max(minimum, _LONG), max(minimum, _LONG)
    yield max(minimum, _LONG), max(minimum, _LONG + 7)


_Maker: TypeAlias = Callable[[], Pixels]


def _kinds(facts: Facts, *, photographs_only: bool) -> list[tuple[str, _Maker]]:
    """Return images (H, W, 3) in 0..1, or a little beyond, by their content."""
    shipped: list[tuple[str, _Maker]] = [
        (f"the photograph {name}", partial(_photograph, path))
        for name, path in photographs().items()
    ]
    first, second, third = shipped
    if photographs_only:
        return [first, second, third]
    kinds: list[tuple[str, _Maker]] = [
        first,
        ("an image with black and white parts", partial(_saturate, first[1])),
        ("a checkerboard", _checkerboard),
        second,
        ("black", partial(_flat, 0.0)),
        ("white", partial(_flat, 1.0)),
        third,
    ]
    if facts.architecture == ARCHITECTURE or is_own(facts.architecture):
        kinds.append(("values beyond 0..1", partial(_beyond, second[1])))
    return kinds


def _photograph(path: Path) -> Pixels:
    return read_image(path).pixels


def _flat(value: float) -> Pixels:
    shape = (2 * _LONG, 2 * _LONG, 3)
    return np.full(shape, value, np.float32)


def _checkerboard() -> Pixels:
    rows, columns = np.indices((2 * _LONG, 2 * _LONG))
    parity = (rows + columns) % 2
    colors = np.repeat(parity[:, :, None], 3, axis=2)
    board: Pixels = colors.astype(np.float32)
    return board


def _saturate(photograph: _Maker) -> Pixels:
    bright = 3.0 * photograph() - 1.0
    pixels: Pixels = np.clip(bright, 0.0, 1.0).astype(np.float32)
    rows, columns = pixels.shape[0] // 2, pixels.shape[1] // 2
    pixels[:, columns:] = 1.0
    pixels[rows:, :columns] = 0.0
    return pixels


def _beyond(photograph: _Maker) -> Pixels:
    return (2.0 * photograph() - 0.5).astype(np.float32)


def _feeds(facts: Facts, make: _Maker, size: Size) -> Feeds:
    batch = {} if "batch" in facts.inputs[0].lengths else {"batch": 1}
    feeds = feeds_of(facts, make(), batch | dict(size))
    scaled = {}
    for port in facts.inputs:
        values = feeds[port.name]
        is_of_pixels = port.role in ("image", "reference", "frames")
        if is_of_pixels and port.range not in (None, UNIT):
            values = to_range(values, port.range)
        scaled[port.name] = values
    return scaled


def split(feeds: Feeds, images: Sequence[int]) -> Feeds:
    """Return the inputs of some images of a batch."""
    places = list(images)
    return {name: array[places] for name, array in feeds.items()}
