"""Distinguishes ESC's variants, and reads their hyper-parameters from a state dict."""

from __future__ import annotations

import math
import re

from ...core.errors import CheckpointError, UnsupportedModelError
from ..architecture import Hyper, State
from ..checkpoints.construction import depths_of, shape_of
from ..layers.attention_types import attention_hyper
from ..sst.hyper import upsampler_hyper
from .network import ESC, ESCFP, ESCRIB, EscNetwork
from .real import ESCReal, ESCRealM

_BLOCK = re.compile(r"blocks\.(\d{1,9})\.ln_proj\.weight")
_STEP = re.compile(r"blocks\.0\.convffns\.(\d{1,9})\.proj\.weight")
_SHUFFLES = [f"to_img.{index}.weight" for index in (0, 2, 4, 6)]
"""The upsampler "pixelshuffle" of ESC-RealM."""


def variant(state: State) -> type[EscNetwork]:
    """Return the class of a state dict.

    Raises:
        UnsupportedModelError: An unsupported upsampler.
    """
    folded = "proj.1.weight" in state
    if "to_img.init_pos" in state or (folded and not all(key in state for key in _SHUFFLES)):
        raise UnsupportedModelError(
            "unknown upsampler of ESC-Real: expected the one of the published ESC-Real, or "
            "'pixelshuffle' of ESC-RealM"
        )
    if "lk_channel" in state:
        return ESCFP
    if folded:
        return ESCRealM
    if "skip.0.weight" in state:
        return ESCReal
    return ESCRIB if "last.1.weight" in state else ESC


def esc_hyper(state: State, build: type[EscNetwork]) -> Hyper:
    """Return the constructor arguments that can be read from the tensors.

    For ESC-RIB ``window_size`` cannot be read; for all others everything can.

    Raises:
        CheckpointError: Tensors are missing, or numbered with a gap.
    """
    dim = shape_of(state, "blocks.0.ln_proj.weight", 1)[0]
    filters = shape_of(state, "lk_spatial" if build is ESCFP else "plk_filter", 4)
    attention = attention_hyper(state, "blocks.0.attn.")
    hyper: Hyper = {
        "dim": dim,
        "pdim": filters[0],
        "kernel_size": filters[-1],
        "n_blocks": depths_of(state, _BLOCK)[0],
        "conv_blocks": depths_of(state, _STEP)[0],
        "exp_ratio": shape_of(state, "blocks.0.convffns.0.proj.weight", 4)[0] / dim,
    }
    if "heads" in attention:
        hyper["num_heads"] = attention["heads"]
    if "window" in attention:
        hyper["window_size"] = attention["window"]
    if build in (ESC, ESCRIB):
        hyper["use_ln"] = "blocks.0.lns.0.weight" in state
    if build is ESCRIB:
        keys = ("attn_type", "gate_type", "rank", "rib_hidden_dim", "rib_n_freqs")
        hyper |= {key: attention[key] for key in keys if key in attention}
        return hyper | upsampler_hyper(state)
    if build is ESCRealM:
        inputs = shape_of(state, "proj.1.weight", 4)[1]
        middle = shape_of(state, _SHUFFLES[0], 4)[0]
        return hyper | {"upscaling_factor": _find_scale(inputs), "mid_dim": middle}
    if build is ESCReal:
        return hyper
    outputs = shape_of(state, "to_img.weight", 4)[0]
    return hyper | {"upscaling_factor": math.isqrt(outputs // 3)}


def _find_scale(inputs: int) -> int:
    """Return the scale of an ESC-RealM by the channels that its image is folded into."""
    scales = {3 * (4 // scale) ** 2: scale for scale in (1, 2)}
    if inputs not in scales:
        raise CheckpointError(
            f"proj.1.weight takes {inputs} channels; expected {' or '.join(map(str, scales))}: "
            "the image, folded for the scale 1 or 2"
        )
    return scales[inputs]
