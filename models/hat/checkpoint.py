"""Loading HAT, at the window it was trained with or another."""

from __future__ import annotations

import math

import torch

from ...core.errors import CheckpointError
from ..architecture import Architecture, BuiltNetwork, Hyper, PrecisionPolicy, Request, State
from ..checkpoints.construction import shape_of
from ..checkpoints.restorer import load_restorer
from ..layers.window_sides import both_sides
from ..swinir.hyper import swinir_hyper
from .index import make_published_index
from .network import HAT

_INDEX = "relative_position_index_"  # buffers that published files hold, at the top level
_OVERLAP_INDEX = _INDEX + "OCA"

_BLOCK = "layers.0.residual_group.blocks.0.conv_block.cab."
_OVERLAP = "layers.0.residual_group.overlap_attn.relative_position_bias_table"


def load(state: State, request: Request) -> BuiltNetwork:
    """Return the network of a state dict."""
    read = hat_hyper(state)
    _check_index(state, read, request.source)
    tensors = {key: value for key, value in state.items() if not key.startswith(_INDEX)}
    return load_restorer("hat", HAT, read, tensors, request)


def _check_index(state: State, read: Hyper, source: str) -> None:
    if _OVERLAP_INDEX not in state or "overlap_ratio" not in read:
        return
    window = both_sides(read["window_size"])
    side = window[0] + round(read["overlap_ratio"] * window[0])
    expected = make_published_index(window, (side, side))
    if not torch.equal(state[_OVERLAP_INDEX].to(torch.int64), expected):
        raise CheckpointError(
            f"{source}: {_OVERLAP_INDEX} is not the published one ({expected.min()} to "
            f"{expected.max()}, {tuple(expected.shape)}): the position biases of its overlapping "
            "attention are in a different order than in HAT"
        )


def hat_hyper(state: State) -> Hyper:
    """Return the constructor arguments that can be read from the tensors.

    ``conv_scale`` cannot be read; without position bias neither can ``window_size``, ``num_heads``
    and ``overlap_ratio``.
    """
    hyper = swinir_hyper(state)
    dim = hyper["embed_dim"]
    hyper["compress_ratio"] = dim // min(dim, shape_of(state, _BLOCK + "0.weight", 4)[0])
    squeezed = shape_of(state, _BLOCK + "3.attention.1.weight", 4)[0]
    hyper["squeeze_factor"] = dim // min(dim, squeezed)
    if "conv_after_body.weight" not in state and hyper["resi_connection"] == "1conv":
        hyper["resi_connection"] = "identity"
    if _OVERLAP in state and "window_size" in hyper:
        hyper["overlap_ratio"] = _overlap(shape_of(state, _OVERLAP, 2)[0], hyper["window_size"])
    return hyper


def _overlap(entries: int, window: int) -> float:
    """Return the overlap of a table of (2 window + overlap - 1)^2 entries, over the window."""
    span = math.isqrt(entries)
    over = span + 1 - 2 * window
    if span * span != entries or over < 0:
        raise CheckpointError(
            f"{_OVERLAP} has {entries} entries; expected (2 * {window} + overlap - 1)^2 for "
            f"windows of {window}"
        )
    return over / window


ARCHITECTURE = Architecture(load, PrecisionPolicy(), retargets=True)
