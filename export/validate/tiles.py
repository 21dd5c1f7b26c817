"""What tiles do to a network, measured on a photograph.

Networks that are known to see the whole image have the loss measured. For those of others it is
measured whether tiles change the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from torch import nn

from ...core.errors import is_out_of_memory
from ...core.ports.port import image_size
from ...models.facts import Facts
from ...models.registry import FOREIGN, is_own
from ...runtime.images.images import read_image
from ...runtime.metrics.measures import PSNR_CEILING, clip_and_measure_psnr
from ...runtime.tasks.restoration.restorer import Restorer
from ..attention.mechanism import Mechanism
from ..attention.site import swap
from ..load.file_type import ARCHITECTURE
from ..load.images import Pixels, feeds_of, photographs
from ..progress import Progress
from ..pytorch.network_session import NetworkSession

_STRIPS = ((32, 320), (320, 32))
"""Heights and widths of the parts of a photograph for networks of others: two thirds of each are
further from a border than the tiles, whose side is the largest of `_SIDES`."""

_STEP = 1.0 / 255.0
_SHARE = 0.005
"""Tiles change the result if more than this share of the values differs by more than a step."""

_HARDLY = 1e-4
_SHARE_OF_MOST = 0.6
"""They also do if more than this share of the values differs by more than rounding. In a network of
limited reach these are values near the borders of tiles; measured: 0.14 at most, and 0.82 and more
for means over the image."""

TilePsnr = tuple[tuple[int, float], ...]
"""Side of the tiles in pixels and PSNR in dB, of each side that was measured."""

_SIDES = (64, 128)
_IMAGE = 160
"""Sides of the tiles and of the photograph, in pixels."""


def tile_sides(facts: Facts) -> tuple[int, ...]:
    """Return the sides of the tiles that `measure_tiles` compares with the whole image.

    There are none where nystra knows that tiles do not change the result, nor where no image can be
    cut: the network has other inputs too, fixed sides, or another output than an image.
    """
    (first, *others), result = facts.inputs, facts.outputs[0]
    images = first.role == "image" and result.role == "picture" and not others
    if not images or facts.sides or facts.preprocessing:
        return ()
    minimum = max(facts.size_multiple, facts.size_minimum)
    if facts.tiling == "supported":
        if is_of_others(facts) and minimum <= _SIDES[-1]:
            return _SIDES[-1:]
        return ()
    return tuple(side for side in _SIDES if minimum <= side)


def is_of_others(facts: Facts) -> bool:
    """Return whether a network is none of nystra's own, whose properties nystra knows."""
    architecture = facts.architecture
    return is_own(architecture) or architecture.partition(":")[0] in (ARCHITECTURE, FOREIGN)


def measure_tiles(
    network: nn.Module,
    resolved: Mapping[str, Mechanism],
    facts: Facts,
    progress: Progress = lambda _: None,
) -> TilePsnr:
    """Return the PSNR in dB of a network in tiles against the same on a whole photograph.

    The tiles overlap as those of a run do, and have the sides that `tile_sides` returns. For a
    network whose tiles are said to be right it is empty if they are.

    Args:
        network: The loaded network.
        resolved: Mechanism of every site.
        facts: Of the network.
        progress: Called with the name of the step, if there is one.
    """
    sides = tile_sides(facts)
    if not sides:
        return ()
    progress("tiles")
    restorer = Restorer(
        NetworkSession(swap(network, resolved, "operator")),
        facts.scale,
        facts.input_channels or 3,
        facts.output_channels or 3,
        facts.range,
        facts.outputs[0].range or facts.range,
        facts.size_multiple,
        facts.size_minimum,
    )
    if facts.tiling != "supported":
        pixels = _photograph(facts, (_IMAGE, _IMAGE))
        untiled, _ = restorer(pixels, tile=max(pixels.shape))
        tiled = {tile: restorer(pixels, tile=tile)[0] for tile in sides}
        return _measure(tiled, untiled)
    for tile in (sides[-1], sides[-1] // 2):
        try:
            return _compare_strips(restorer, facts, tile)
        except Exception as error:  # it takes no image so long, as with a table of positions
            if is_out_of_memory(error):
                raise
    return ()


def _compare_strips(restorer: Restorer, facts: Facts, tile: int) -> TilePsnr:
    """Return the PSNR of tiles on a strip in which they change the result; empty if in none."""
    for strip in _STRIPS:
        part = tuple(side * tile // _SIDES[-1] for side in strip)
        pixels = _shade(_photograph(facts, part))
        untiled, _ = restorer(pixels, tile=max(pixels.shape))
        tiled, _ = restorer(pixels, tile=tile)
        if not _is_same(tiled, untiled):
            return _measure({tile: tiled}, untiled)
    return ()


def _measure(tiled: Mapping[int, Pixels], untiled: Pixels) -> TilePsnr:
    """Return the PSNR of images by the tile that they were run in."""
    figures = []
    for tile, image in tiled.items():
        psnr = clip_and_measure_psnr(image, untiled)
        if not math.isnan(psnr):
            figures.append((tile, min(round(psnr, 1), PSNR_CEILING)))
    return tuple(figures)


def _photograph(facts: Facts, part: Sequence[int]) -> Pixels:
    """Return a part of a photograph, (H, W, C) of at least this height and width."""
    photograph = read_image(next(iter(photographs().values()))).pixels
    smallest = facts.size_minimum
    height, width = (facts.round_up(max(side, smallest)) for side in part)
    feeds = feeds_of(facts, photograph, image_size(height, width))
    (image,) = feeds.values()
    return np.moveaxis(image[0], 0, 2)


def _shade(pixels: Pixels) -> Pixels:
    """Return an image that is bright at its end: no two tiles have the same mean and extremes."""
    axis = int(pixels.shape[1] > pixels.shape[0])
    ramp = np.linspace(0.0, 1.0, pixels.shape[axis], dtype=np.float32)
    ramp = np.expand_dims(ramp, (1 - axis, 2))
    shaded: Pixels = np.minimum(pixels * 4.0, 1.0) * ramp
    return shaded


def _is_same(tiled: Pixels, untiled: Pixels) -> bool:
    """Return whether few values differ by more than a step of 8 bits, and most hardly at all."""
    change = np.abs(tiled - untiled)
    limits = ((_STEP, _SHARE), (_HARDLY, _SHARE_OF_MOST))
    for size, share in limits:
        beyond = ~(change <= size)
        if not float(np.mean(beyond)) <= share:
            return False
    return True


def tiles_warning(facts: Facts, measured: TilePsnr) -> str:
    """Return the sentence on tiles that were found to change the result, or ""."""
    if facts.tiling != "supported" or not measured:
        return ""
    tile, psnr = measured[-1]
    return (
        f"tiles change the result ({psnr:.1f} dB in tiles of {tile} against a whole photograph), "
        "so `nystra run` and `nystra serve` run images whole unless `tile` is given"
    )
