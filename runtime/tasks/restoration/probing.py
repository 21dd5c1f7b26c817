"""What a file by another program does not say, found by running it on small grey images."""

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
_GREY = 0.5
_BYTES = (0.0, 255.0)
_DARK, _BRIGHT = 0.05, 8.0  # what grey of 0..1 becomes where input or output are of 0..255

Range = tuple[float, float]


@dataclass(frozen=True)
class Probed:
    """What was found.

    Attributes:
        scale: Output pixels for one of the input, and axis.
        inputs: Channels of the input.
        outputs: Channels of the output.
        multiple: Sides have to be multiples of it.
        minimum: Smallest side that it is run at.
        fixed: The only height and width it takes, or None.
        input_range: Lowest and highest value it takes.
        output_range: The same of what it gives.
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
    """Run a model on grey images until it takes one, then at odd sizes.

    Args:
        path: Of the file, for messages.
        function: (1, C, h, w) -> (1, C', h * scale, w * scale).
        channels: C where the file says it; 3 and then 1 are tried where it does not.
        fixed: The only height and width where the file says them.

    Raises:
        NystraError: It takes no image that was tried, or makes no image of it.
    """
    failures: list[NystraError] = []
    for side in [fixed] if fixed is not None else [(side, side) for side in _SIDES]:
        for count in (3, 1) if channels is None else (channels,):
            try:
                got = function(_grey(count, side))
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
    """Return a function of any size where the given one takes multiples: mirrored, and cropped."""

    def call(image: Array) -> Array:
        height, width = image.shape[2:]
        rows, columns = (-(-side // multiple) * multiple for side in (height, width))
        whole = function(mirror_to(image, rows, columns))
        return whole[:, :, : height * scale, : width * scale]

    return call


def _grey(channels: int, side: tuple[int, int], value: float = _GREY) -> Array:
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
    """Return the smallest multiple whose sides it takes; None if it takes no other side."""
    for multiple in _MULTIPLES:
        height, width, *_ = _odd_multiples(multiple, side)
        try:
            function(_grey(channels, (height, width)))
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
    """Return the ranges of input and output, by what becomes of grey.

    A file that takes and gives 0..255 does to 0.5 what one of 0..1 does: it is taken for that.
    """
    unit = (0.0, 1.0)
    level = float(np.mean(output))
    if level > _BRIGHT:
        return unit, _BYTES
    if abs(level) < _DARK:
        again = float(np.mean(function(_grey(channels, side, _GREY * _BYTES[1]))))
        if abs(again - _GREY) < _GREY / 2:
            return _BYTES, unit
    return unit, unit
