"""Reads HAT's hyper-parameters from a state dict."""

from __future__ import annotations

import math

from ...core.errors import CheckpointError
from ..architecture import Hyper, State
from ..checkpoints.construction import shape_of
from ..swinir.hyper import swinir_hyper

_BLOCK = "layers.0.residual_group.blocks.0.conv_block.cab."
_OVERLAP = "layers.0.residual_group.overlap_attn.relative_position_bias_table"


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
