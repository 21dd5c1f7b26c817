"""What tiles do to a network that sees the whole image, measured on a photograph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from torch import nn

from ...core.ports.port import image_size
from ...models.facts import Facts
from ...runtime.images.images import read_image
from ...runtime.metrics.measures import PSNR_CEILING, clipped_psnr
from ...runtime.tasks.restoration.restorer import Restorer
from ..attention.mechanism import Mechanism
from ..attention.site import swap
from ..load.images import feeds_of, photographs
from ..pytorch.network_session import NetworkSession

TilePsnr = tuple[tuple[int, float], ...]
"""Side of the tiles in pixels and PSNR in dB, of each side that was measured."""

_SIDES = (64, 128)
_IMAGE = 160
"""Sides of the tiles and of the photograph, in pixels."""


def tile_sides(facts: Facts) -> tuple[int, ...]:
    """Return the sides of the tiles that `measure_tiles` compares with the whole image.

    There are none where tiles do not change the result, nor where no image can be cut: the network
    has other inputs too, fixed sides, or another output than an image.
    """
    (first, *others), result = facts.inputs, facts.outputs[0]
    images = first.role == "image" and result.role == "picture" and not others
    if not images or facts.tiling == "supported" or facts.sides or facts.preprocessing:
        return ()
    minimum = max(facts.size_multiple, facts.size_minimum)
    return tuple(side for side in _SIDES if minimum <= side)


def measure_tiles(
    network: nn.Module,
    resolved: Mapping[str, Mechanism],
    facts: Facts,
    progress: Callable[[str], None] = lambda _: None,
) -> TilePsnr:
    """Return the PSNR in dB of a network in tiles against the same on a whole photograph.

    The tiles overlap as those of a run do, and have the sides that `tile_sides` returns.

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
    photograph = read_image(next(iter(photographs().values()))).pixels
    side = facts.taken(_IMAGE)
    (image,) = feeds_of(facts, photograph, image_size(side, side)).values()
    pixels = np.moveaxis(image[0], 0, 2)
    untiled, _ = restorer(pixels, tile=side)
    found = [(tile, clipped_psnr(restorer(pixels, tile=tile)[0], untiled)) for tile in sides]
    return tuple(
        (tile, min(round(psnr, 1), PSNR_CEILING)) for tile, psnr in found if not math.isnan(psnr)
    )
