"""Properties that another program's file does not state, found by runs on small gray images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ....core.arrays import Array
from ....core.errors import NystraError
from ...tiling.mirror import mirror_to

_SIDES = (32, 64, 128, 224, 256)
_MULTIPLES = (1, 2, 4, 8, 16, 32, 64)
_GRAY = 0.5
_BYTES = (0.0, 255.0)
_DARK, _BRIGHT = 0.05, 8.0  # gray of 0..1 if the input or output has 0..255

Range = tuple[float, float]


@dataclass(frozen=True)
class Probed:
    """The results.

    Attributes:
        scale: Output pixels per input pixel and axis.
        inputs: Channels of the input.
        outputs: Channels of the output.
        multiple: Sides have to be multiples of it.
        minimum: Smallest supported side.
        fixed: The only supported height and width, or None.
        input_range: Lowest and highest value of the input.
        output_range: Lowest and highest value of the output.
    """

    scale: int
    inputs: int
    outputs: int
    multiple: int = 1
    minimum: int = 1
    fixed: tuple[int, int] | None = None
    input_range: Range = (0.0, 1.0)
    output_range: Range = (0.0, 1.0)


def probe(
    path: Path,
    function: Callable[[Array], Array],
    channels: int | None,
    fixed: tuple[int, int] | None,
) -> Probed:
    """Run a model on gray images until one succeeds, then at odd sizes.

    Args:
        path: Path of the file, for messages.
        function: (1, C, h, w) -> (1, C', h * scale, w * scale).
        channels: C if the file states it; otherwise 3 and then 1 are tried.
        fixed: The only height and width if the file states them.

    Raises:
        NystraError: It fails for all images that were tried, or does not return an image.
    """
    failures: list[NystraError] = []
    for side in [fixed] if fixed is not None else [(side, side) for side in _SIDES]:
        for count in (3, 1) if channels is None else (channels,):
            try:
                got = function(_gray(count, side))
            except NystraError as error:
                failures.append(error)
                continue
            scale = _scale(path, (count, *side), got.shape)
            ranges = _ranges(function, got, count, side)
            if fixed is not None:
                return Probed(scale, count, got.shape[1], 1, 1, fixed, *ranges)
            multiple = _multiple(function, count, side[0])
            only = side if multiple is None else None
            least = 1 if side[0] == _SIDES[0] else side[0]
            return Probed(scale, count, got.shape[1], multiple or 1, least, only, *ranges)
    raise NystraError(f"a trial run of {path} failed: {failures[0]}")


def padded(
    function: Callable[[Array], Array], multiple: int, scale: int
) -> Callable[[Array], Array]:
    """Return a function for any size from one for multiples: images are mirrored, then cropped."""

    def call(image: Array) -> Array:
        height, width = image.shape[2:]
        rows, columns = (-(-side // multiple) * multiple for side in (height, width))
        whole = function(mirror_to(image, rows, columns))
        return whole[:, :, : height * scale, : width * scale]

    return call


def _gray(channels: int, side: tuple[int, int], value: float = _GRAY) -> Array:
    return np.full((1, channels, *side), value, np.float32)


def _scale(path: Path, shape: tuple[int, int, int], got: tuple[int, ...]) -> int:
    _, height, width = shape
    scale = got[2] // height if len(got) == 4 else 0
    if len(got) != 4 or scale < 1 or got[2:] != (height * scale, width * scale):
        raise NystraError(
            f"{path} returned {got} for an image of {(1, *shape)}, expected the "
            "same size or a whole multiple of it"
        )
    return scale


def _multiple(function: Callable[[Array], Array], channels: int, side: int) -> int | None:
    """Return the smallest multiple that works for sides; None if no other side works."""
    for multiple in _MULTIPLES:
        height, width, *_ = _odd_multiples(multiple, side)
        try:
            function(_gray(channels, (height, width)))
        except NystraError:
            continue
        return multiple
    return None


def _odd_multiples(multiple: int, above: int) -> Iterator[int]:
    """Yield the next sides above one that are multiples of a number and not of its double."""
    first = above // (2 * multiple) * 2 * multiple + multiple
    first += 2 * multiple * (first <= above)
    yield first
    yield first + 2 * multiple


def _ranges(
    function: Callable[[Array], Array], output: Array, channels: int, side: tuple[int, int]
) -> tuple[Range, Range]:
    """Return the ranges of input and output, from the output for gray.

    A file with 0..255 for both cannot be distinguished by 0.5 from one with 0..1, which is assumed.
    """
    unit = (0.0, 1.0)
    level = float(np.mean(output))
    if level > _BRIGHT:
        return unit, _BYTES
    if abs(level) < _DARK:
        again = float(np.mean(function(_gray(channels, side, _GRAY * _BYTES[1]))))
        if abs(again - _GRAY) < _GRAY / 2:
            return _BYTES, unit
    return unit, unit
