"""Properties that another program's file does not state, found by runs on small images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ....core.arrays import Array
from ....core.errors import NystraError
from ....core.ports.pixels import from_range, to_range
from ....core.ports.port import BYTES, UNIT, Range
from ...metrics.sanity import beyond_doubt, contrast_doubt
from ...tiling.tile_plan import mirror_to
from ...tiling.tiled_network import TiledNetwork

_SIDES = (32, 64, 128, 224, 256, 48, 96, 192, 384, 512, 72, 80, 112, 120, 144, 160, 320)
_MULTIPLES = (1, 2, 4, 8, 16, 32, 64)
_GRAY = 0.5
_ROUNDING = 1e-3
"""Largest difference of an image in a batch and alone, relative to the largest value."""
_FIT = 0.25
"""Largest root mean square between the picture and the output for a range other than 0..1."""


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
    input_range: Range = UNIT
    output_range: Range = UNIT


def probe(
    path: Path,
    function: Callable[[Array], Array],
    channels: int | None,
    fixed: tuple[int, int] | None,
    ranges: tuple[Range | None, Range | None] = (None, None),
) -> Probed:
    """Run a model on a small picture until one size succeeds, then at odd sizes.

    Args:
        path: Path of the file, for messages.
        function: (1, C, h, w) -> (1, C', h * scale, w * scale).
        channels: C if the file states it; otherwise 3 and then 1 are tried.
        fixed: The only height and width if the file states them.
        ranges: The ranges of input and output; None is measured, see `measure_ranges`.

    Raises:
        NystraError: It fails for all images that were tried, or does not return an image.
    """
    failures: list[NystraError] = []
    for side in [fixed] if fixed is not None else [(side, side) for side in _SIDES]:
        for count in (3, 1) if channels is None else (channels,):
            try:
                got = function(to_range(_picture(count, side), ranges[0] or UNIT))
            except NystraError as error:
                failures.append(error)
                continue
            scale = _scale(path, (count, *side), got.shape)
            measured = measure_ranges(function, got, count, side, ranges)
            if fixed is not None:
                return Probed(scale, count, got.shape[1], 1, 1, fixed, *measured)
            multiple = _multiple(function, count, side[0], scale)
            only = side if multiple is None else None
            minimum = 1 if side[0] == _SIDES[0] else side[0]
            return Probed(scale, count, got.shape[1], multiple or 1, minimum, only, *measured)
    raise NystraError(f"a trial run of {path} failed: {failures[0]}")


def is_batched(function: Callable[[Array], Array], shape: tuple[int, ...]) -> bool:
    """Return whether a model computes each image of a batch as it does the image alone.

    Images of several brightnesses stand together: white ones, and values beyond 0..1, may lead a
    model that takes the mean of a batch elsewhere.

    Args:
        function: (B, C, h, w) -> its output, the batch first.
        shape: Of two or more images.
    """
    noise = np.random.default_rng(0).random(shape, np.float32)
    first = np.arange(shape[0]).reshape(-1, *[1] * (len(shape) - 1)) == 0
    dark = noise * np.float32(0.25)
    batches = (
        np.where(first, noise, dark),
        np.where(first, 1 - noise * np.float32(0.05), 1 - noise),
        np.where(first, noise * np.float32(4), dark),
    )
    return all(_is_same_alone(function, images) for images in batches)


def _is_same_alone(function: Callable[[Array], Array], images: Array) -> bool:
    try:
        batched = function(images)
        each = [function(images[at : at + 1]) for at in range(len(images))]
    except NystraError:
        return False
    joined = np.concatenate(each)
    if batched.shape != joined.shape:
        return False
    finite = np.abs(joined[np.isfinite(joined)])
    allowed = _ROUNDING * max(float(finite.max(initial=0.0)), 1e-30)
    return np.allclose(batched, joined, rtol=0.0, atol=allowed, equal_nan=True)


def shows_pictures(network: TiledNetwork) -> bool:
    """Return whether the output of a model for a test picture is one in the model's ranges.

    Then an output without contrast is the model's answer: an empty mask, a dark page in black and
    white.

    Args:
        network: One without further inputs.
    """
    step = network.size_multiple
    side = -(-max(_SIDES[0], network.size_minimum) // step) * step
    picture = _picture(network.input_channels, network.fixed_size or (side, side))
    try:
        output = network.function(to_range(picture, network.range))
    except NystraError:
        return False
    output = from_range(output, network.output_range)[0]
    return _is_picture(np.moveaxis(output, 0, 2), np.moveaxis(picture[0], 0, 2))


def _is_picture(output: Array, source: Array) -> bool:
    """Return whether an output (H, W, C) may be an image in 0..1 made of ``source``."""
    finite = bool(np.isfinite(output).all())
    return finite and not (beyond_doubt(output) or contrast_doubt(output, source))


def pad_to_multiple(
    function: Callable[..., Array], multiple: int, scale: int
) -> Callable[..., Array]:
    """Return a function for any size from one for multiples: images are mirrored, then cropped.

    So are further images (B, C, H, W) by name; arrays of fewer axes are passed on.
    """

    def up(array: Array) -> Array:
        sides = (-(-side // multiple) * multiple for side in array.shape[2:])
        return mirror_to(array, *sides) if array.ndim == 4 else array

    def call(image: Array, **others: Array) -> Array:
        height, width = image.shape[2:]
        output = function(up(image), **{name: up(array) for name, array in others.items()})
        return output[:, :, : height * scale, : width * scale]

    return call


def _gray(channels: int, side: tuple[int, int]) -> Array:
    return np.full((1, channels, *side), _GRAY, np.float32)


def _scale(path: Path, shape: tuple[int, int, int], got: tuple[int, ...]) -> int:
    _, height, width = shape
    scale = got[2] // height if len(got) == 4 else 0
    if len(got) != 4 or scale < 1 or got[2:] != (height * scale, width * scale):
        raise NystraError(
            f"{path} returned {got} for an image of {(1, *shape)}, expected the "
            "same size or a whole multiple of it"
        )
    return scale


def _multiple(
    function: Callable[[Array], Array], channels: int, side: int, scale: int
) -> int | None:
    """Return the smallest multiple that works for sides; None if no other side works."""
    for multiple in _MULTIPLES:
        height, width, *_ = _odd_multiples(multiple, side)
        try:
            got = function(_gray(channels, (height, width)))
        except NystraError:
            continue
        if got.shape[2:] == (scale * height, scale * width):
            return multiple
    return None


def _odd_multiples(multiple: int, above: int) -> Iterator[int]:
    """Yield the next sides above one that are multiples of a number and not of its double."""
    first = above // (2 * multiple) * 2 * multiple + multiple
    first += 2 * multiple * (first <= above)
    yield first
    yield first + 2 * multiple


def measure_ranges(
    function: Callable[[Array], Array],
    first: Array,
    channels: int,
    side: tuple[int, int],
    stated: tuple[Range | None, Range | None],
) -> tuple[Range, Range]:
    """Return the ranges of input and output, from the output for a picture.

    Each is 0..1 if the output is then a picture like the input; otherwise 0..255, if the output is
    then close to the input.

    Args:
        function: The model.
        first: Its output for `_picture`, in the stated range or in 0..1.
        channels: Of the input.
        side: Height and width of the picture.
        stated: What need not be measured.
    """
    in_ranges, out_ranges = (((UNIT, BYTES) if own is None else (own,)) for own in stated)
    source = np.moveaxis(_picture(channels, side)[0], 0, 2)
    picture = _picture(channels, side)
    outputs = {in_ranges[0]: first}
    best, error = (in_ranges[0], out_ranges[0]), _FIT
    for pair in product(in_ranges, out_ranges):
        if pair[0] not in outputs:
            outputs[pair[0]] = function(to_range(picture, pair[0]))
        output = np.moveaxis(from_range(outputs[pair[0]], pair[1])[0], 0, 2)
        plausible = _is_picture(output, source)
        if plausible and pair == (in_ranges[0], out_ranges[0]):
            return pair
        if plausible and (distance := _distance(output, source)) < error:
            best, error = pair, distance
    return best


def _distance(output: Array, source: Array) -> float:
    """Return the root mean square of the gray of an output minus that of its source."""
    height, width = source.shape[:2]
    rows, columns = output.shape[0] // height, output.shape[1] // width
    small = output.mean(2).reshape(height, rows, width, columns).mean((1, 3))
    return float(np.sqrt(np.mean((small - source.mean(2)) ** 2)))


def _picture(channels: int, side: tuple[int, int]) -> npt.NDArray[np.float32]:
    """Return a smooth picture (1, C, H, W) from dark to bright, another one in each channel."""
    rows, columns = np.ogrid[: side[0], : side[1]]
    waves = [np.sin(rows / 5 + phase) * np.cos(columns / 7 - phase) for phase in range(channels)]
    picture: npt.NDArray[np.float32] = (0.5 + 0.45 * np.stack(waves)[None]).astype(np.float32)
    return picture
