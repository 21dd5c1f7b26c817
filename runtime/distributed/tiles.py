"""One image whose tiles are run by all workers; cutting and blending happen here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from ...core.arrays import Array
from ...core.errors import NystraError
from ..tiling.run_tiled import ImageFunction
from ..tiling.tiled_network import TiledNetwork
from .worker import Failed
from .worker_pool import WorkerPool

Network = TypeVar("Network", bound=TiledNetwork)

TILE = 512
"""Default side of the tiles, in input pixels."""


def distribute_tiles(network: Network, pool: WorkerPool) -> Network:
    """Return a network whose tiles are run by the workers.

    Each worker runs as many tiles at once as the network would, and the results are blended in the
    order of the tiles: they are bit-identical to those of a run without workers. Memory holds only
    the tiles that the workers have.

    Raises:
        NystraError: The network needs the whole image, so there are no tiles to distribute.
    """
    if network.whole:
        raise NystraError(
            "the model needs the whole image, so workers cannot share one: run "
            "it without a cluster, or give a folder"
        )

    def batches(_: ImageFunction, parts: Iterable[list[Array]]) -> Iterator[list[Array]]:
        for result in pool.run((("tiles", (part,)) for part in parts), ordered=True):
            if isinstance(result.value, Failed):
                raise NystraError(result.value.error)
            yield result.value

    return replace(network, batches=batches)
