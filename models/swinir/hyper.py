"""Reads SwinIR's hyper-parameters from a state dict."""

from __future__ import annotations

import math
import re

from ...core.errors import CheckpointError
from ..architecture import Hyper, State
from ..checkpoints.construction import depths_of, shape_of

_BLOCK = re.compile(r"layers\.(\d{1,9})\.residual_group\.blocks\.(\d{1,9})\.")
_MAX_STEPS = 7  # doublings that are read from keys; one more than any network has
_ATTENTION = "layers.{}.residual_group.blocks.{}.attn."


def swinir_hyper(state: State) -> Hyper:
    """Return the constructor arguments that can be read from the tensors.

    ``num_heads`` cannot be read without position bias, nor ``window_size`` without attention masks
    as well.
    """
    dim, channels, *_ = shape_of(state, "conv_first.weight", 4)
    hidden = shape_of(state, "layers.0.residual_group.blocks.0.mlp.fc1.weight", 2)[0]
    matches = filter(None, map(_BLOCK.match, state))
    blocks = {(int(match[1]), int(match[2])) for match in matches}
    depths = depths_of(state, _BLOCK)
    groups = len(depths)
    hyper: Hyper = {
        "embed_dim": dim,
        "in_chans": channels,
        "depths": depths,
        "mlp_ratio": hidden / dim,
        "qkv_bias": _ATTENTION.format(0, 0) + "qkv.bias" in state,
        "patch_norm": "patch_embed.norm.weight" in state,
        "ape": "absolute_pos_embed" in state,
        "resi_connection": "3conv" if "conv_after_body.0.weight" in state else "1conv",
    }
    hyper |= _head(state, channels)
    hyper |= _windows(state, groups, blocks)
    return hyper


def _head(state: State, channels: int) -> Hyper:
    if "conv_up1.weight" in state:
        return {"upsampler": "nearest+conv", "upscale": 4 if "conv_up2.weight" in state else 2}
    if "conv_before_upsample.0.weight" in state:
        steps = [key for key in state if re.fullmatch(r"upsample\.\d+\.weight", key)]
        outputs, inputs, *_ = shape_of(state, "upsample.0.weight", 4)
        scale = 3 if outputs == 9 * inputs else 2 ** min(len(steps), _MAX_STEPS)
        return {"upsampler": "pixelshuffle", "upscale": scale}
    if "upsample.0.weight" in state:
        scale = math.isqrt(shape_of(state, "upsample.0.weight", 4)[0] // channels)
        return {"upsampler": "pixelshuffledirect", "upscale": scale}
    return {"upsampler": "", "upscale": 1}


def _windows(state: State, groups: int, blocks: set[tuple[int, int]]) -> Hyper:
    names = [
        _ATTENTION.format(group, 0) + "relative_position_bias_table" for group in range(groups)
    ]
    present = [shape_of(state, name, 2) for name in names if name in state]
    shapes = [value.shape for key, value in state.items() if key.endswith(".attn_mask")]
    masks = [shape for shape in shapes if len(shape) == 3 and shape.numel()]
    index = state.get(_ATTENTION.format(0, 0) + "relative_position_index")
    hyper: Hyper = {}
    if present and len(present) < groups:
        raise CheckpointError(
            f"{len(present)} of {groups} groups have a relative_position_bias_table: expected "
            "all or none"
        )
    if present:
        side = (math.isqrt(present[0][0]) + 1) // 2
        if (2 * side - 1) ** 2 == present[0][0]:
            hyper["window_size"] = side
        hyper["num_heads"] = [heads for _, heads in present]
    else:
        hyper |= {"position_bias": False, "mask": False}
        if masks:
            hyper["window_size"] = math.isqrt(masks[0][-1])
    if masks and "window_size" in hyper:
        hyper["img_size"] = math.isqrt(masks[0][0]) * hyper["window_size"]
    elif index is not None and any(number % 2 for _, number in blocks) and "window_size" in hyper:
        hyper["img_size"] = hyper["window_size"]  # published buffers, and none of them a mask
    if "absolute_pos_embed" in state:
        places = shape_of(state, "absolute_pos_embed", 3)[1]
        side = math.isqrt(places)
        if side * side == places:
            hyper["img_size"] = side
    return hyper
