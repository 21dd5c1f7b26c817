"""Reads Uformer's hyper-parameters from a state dict."""

from __future__ import annotations

import math
import re
from collections import Counter

from ...core.errors import CheckpointError, UnsupportedModelError
from ..architecture import Hyper, State
from ..checkpoints.construction import shape_of
from ..checkpoints.tensor_checks import MAX_BLOCKS
from .network import LEVELS, STAGE_NAMES

_BLOCK = re.compile(rf"({'|'.join(STAGE_NAMES)})\.blocks\.(\d{{1,9}})\.")
_TABLE = "{}.blocks.0.attn.relative_position_bias_table"
_MODULATOR = "decoderlayer_0.blocks.0.modulator.weight"


def uformer_hyper(state: State) -> Hyper:
    """Return the constructor arguments that can be read from the tensors.

    ``shift_flag`` and ``qk_scale`` never can; ``img_size`` only if a stage has a smaller window
    than the first, ``num_heads`` only with position biases, and ``window_size`` with these or a
    modulator.

    Raises:
        UnsupportedModelError: An option of the published constructor that does not run.
        CheckpointError: Tensors are missing, or numbered with a gap.
    """
    _refuse_options(state)
    first = "encoderlayer_0.blocks.0."
    width, channels, *_ = shape_of(state, "input_proj.proj.0.weight", 4)
    convolution = first + "mlp.linear1.0.weight" in state
    layer = "mlp.linear1.0.weight" if convolution else "mlp.fc1.weight"
    hyper: Hyper = {
        "embed_dim": width,
        "dd_in": channels,
        "in_chans": shape_of(state, "output_proj.proj.0.weight", 4)[0],
        "depths": _depths(state),
        "mlp_ratio": shape_of(state, first + layer, 2)[0] / width,
        "qkv_bias": first + "attn.qkv.to_q.bias" in state,
        "token_mlp": "leff" if convolution else "ffn",
        "modulator": _MODULATOR in state,
    }
    return hyper | _windows(state)


def _refuse_options(state: State) -> None:
    if "encoderlayer_0.blocks.0.attn.qkv.to_q.weight" not in state:
        raise UnsupportedModelError(
            "the file has no encoderlayer_0.blocks.0.attn.qkv.to_q.weight: expected a Uformer "
            "with token_projection linear (the published code of 'conv' does not run with "
            "current PyTorch)"
        )
    crossed = next((key for key in state if ".cross_modulator." in key), None)
    if crossed is not None:
        raise UnsupportedModelError(
            f"the file has {crossed}: cross_modulator is not supported, and no published Uformer "
            "has it; expected a network without"
        )


def _depths(state: State) -> list[int]:
    matches = filter(None, map(_BLOCK.match, state))
    blocks = {(match[1], int(match[2])) for match in matches}
    if len(blocks) > MAX_BLOCKS:
        raise CheckpointError(f"{len(blocks)} blocks; expected {MAX_BLOCKS} at most")
    counts = Counter(name for name, _ in blocks)
    depths = [counts[stage] for stage in STAGE_NAMES]
    for stage, depth in zip(STAGE_NAMES, depths, strict=True):
        absent = [index for index in range(max(depth, 1)) if (stage, index) not in blocks]
        if absent:
            raise CheckpointError(
                f"the file has no {stage}.blocks.{absent[0]}: expected stages and blocks "
                "numbered from 0 without a gap"
            )
    return depths


def _windows(state: State) -> Hyper:
    names = map(_TABLE.format, STAGE_NAMES)
    tables = [shape_of(state, name, 2) for name in names if name in state]
    if not tables:
        hyper: Hyper = {"position_bias": False, "mask": False}
        if _MODULATOR in state:
            hyper["window_size"] = math.isqrt(shape_of(state, _MODULATOR, 2)[0])
        return hyper
    if len(tables) < len(STAGE_NAMES):
        raise CheckpointError(
            f"{len(tables)} of {len(STAGE_NAMES)} stages have a relative_position_bias_table: "
            "expected all or none"
        )
    sides = [(math.isqrt(rows) + 1) // 2 for rows, _ in tables]
    hyper = {"window_size": sides[0], "num_heads": [heads for _, heads in tables]}
    clamped = [side << level for side, level in zip(sides, LEVELS, strict=True) if side < sides[0]]
    return hyper | ({"img_size": clamped[0]} if clamped else {})
