"""Reading SwinIR's hyper-parameters off a state dict."""

from __future__ import annotations

import math
import re

from ...plugins.errors import CheckpointError
from ..architecture import Hyper, State

_BLOCK = re.compile(r"layers\.(\d+)\.residual_group\.blocks\.(\d+)\.")
_ATTENTION = "layers.{}.residual_group.blocks.{}.attn."


def swinir_hyper(state: State) -> Hyper:
    """Return the constructor arguments that the tensors tell; what they cannot tell is left out.

    A state dict without position bias cannot tell ``num_heads``; without attention masks it
    cannot tell ``window_size`` either.
    """
    first = state["conv_first.weight"]
    dim, channels = first.shape[0], first.shape[1]
    blocks = {(int(m[1]), int(m[2])) for key in state if (m := _BLOCK.match(key))}
    groups = max(group for group, _ in blocks) + 1
    hyper: Hyper = {
        "embed_dim": dim,
        "in_chans": channels,
        "depths": [sum(1 for group, _ in blocks if group == index) for index in range(groups)],
        "mlp_ratio": state["layers.0.residual_group.blocks.0.mlp.fc1.weight"].shape[0] / dim,
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
        triples = state["upsample.0.weight"].shape[0] == 9 * state["upsample.0.weight"].shape[1]
        return {"upsampler": "pixelshuffle", "upscale": 3 if triples else 2 ** len(steps)}
    if "upsample.0.weight" in state:
        scale = math.isqrt(state["upsample.0.weight"].shape[0] // channels)
        return {"upsampler": "pixelshuffledirect", "upscale": scale}
    return {"upsampler": "", "upscale": 1}


def _windows(state: State, groups: int, blocks: set[tuple[int, int]]) -> Hyper:
    tables = [
        state.get(_ATTENTION.format(group, 0) + "relative_position_bias_table")
        for group in range(groups)
    ]
    masks = [
        value for key, value in state.items() if key.endswith(".attn_mask") and value.dim() == 3
    ]
    index = state.get(_ATTENTION.format(0, 0) + "relative_position_index")
    hyper: Hyper = {}
    present = [table for table in tables if table is not None]
    if present and len(present) < groups:
        raise CheckpointError(
            f"{len(present)} of {groups} groups have a relative_position_bias_table: "
            "either all have one or none"
        )
    if present:
        side = (math.isqrt(present[0].shape[0]) + 1) // 2
        if (2 * side - 1) ** 2 == present[0].shape[0]:
            hyper["window_size"] = side
        hyper["num_heads"] = [table.shape[1] for table in present]
    else:
        hyper |= {"position_bias": False, "mask": False}
        if masks:
            hyper["window_size"] = math.isqrt(masks[0].shape[-1])
    if masks and "window_size" in hyper:
        hyper["img_size"] = math.isqrt(masks[0].shape[0]) * hyper["window_size"]
    elif index is not None and any(number % 2 for _, number in blocks) and "window_size" in hyper:
        hyper["img_size"] = hyper["window_size"]  # published buffers, and none of them a mask
    if "absolute_pos_embed" in state:
        side = math.isqrt(state["absolute_pos_embed"].shape[1])
        if side * side == state["absolute_pos_embed"].shape[1]:
            hyper["img_size"] = side
    return hyper
