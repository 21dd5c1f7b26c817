"""One picture whose tiles are run by all workers; it is cut and put together here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ...plugins.errors import NystraError
from ..restoring.tiled_network import TiledNetwork
from .crew import Crew
from .worker import Failed

Array = npt.NDArray[Any]
Network = TypeVar("Network", bound=TiledNetwork)

TILE = 512
"""Side of the tiles where none is asked for, in input pixels."""

_AHEAD = 8


def spread_tiles(network: Network, crew: Crew) -> Network:
    """Return a network whose tiles go to the workers, many at a time.

    Each worker runs as many tiles at once as the network would, and the results are blended in
    the order of the tiles: they are those of a run without workers, to the bit.

    Raises:
        NystraError: The network has to see the whole picture, so there is nothing to spread.
    """
    if network.tiling == "internal" or network.mask_input or network.reference_input:
        raise NystraError(
            "the model has to see the whole of a picture, so workers cannot share one: leave "
            "--ray out, or give a folder"
        )
    at_once = network.batch
    function = _spreading(crew, at_once)
    return replace(network, function=function, batch=_AHEAD * crew.size * at_once, meter=None)


def _spreading(crew: Crew, at_once: int) -> Callable[[Array], Array]:
    def run(images: Array) -> Array:
        parts = [images[first : first + at_once] for first in range(0, len(images), at_once)]
        made = []
        for outcome in crew.run((("tiles", (part,)) for part in parts), ordered=True):
            if isinstance(outcome.value, Failed):
                raise NystraError(outcome.value.error)
            made.append(outcome.value)
        return np.concatenate(made)

    return run
