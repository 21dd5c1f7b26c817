"""Loading HAT, at the window it was trained with or another."""

from __future__ import annotations

import torch

from ...core.errors import CheckpointError
from ..architecture import Architecture, BuiltNetwork, Hyper, PrecisionPolicy, Request, State
from ..checkpoints.restorer import load_restorer
from ..layers.window_sides import both_sides
from .hyper import hat_hyper
from .index import published_index
from .network import HAT

_INDEX = "relative_position_index_"  # buffers that published files hold, at the top level
_OVERLAP_INDEX = _INDEX + "OCA"


def load(state: State, request: Request) -> BuiltNetwork:
    """Return the network of a state dict."""
    read = hat_hyper(state)
    _check_index(state, read, request.source)
    tensors = {key: value for key, value in state.items() if not key.startswith(_INDEX)}
    return load_restorer("hat", HAT, read, tensors, request)


def _check_index(state: State, read: Hyper, source: str) -> None:
    """Raise CheckpointError if a file orders its overlapping biases differently."""
    if _OVERLAP_INDEX not in state or "overlap_ratio" not in read:
        return
    window = both_sides(read["window_size"])
    side = window[0] + round(read["overlap_ratio"] * window[0])
    expected = published_index(window, (side, side))
    if not torch.equal(state[_OVERLAP_INDEX].to(torch.int64), expected):
        raise CheckpointError(
            f"{source}: {_OVERLAP_INDEX} is not the published one ({expected.min()} to "
            f"{expected.max()}, {tuple(expected.shape)}): the position biases of its overlapping "
            "attention are in a different order than in HAT"
        )


ARCHITECTURE = Architecture(load, PrecisionPolicy(), retargets=True)
