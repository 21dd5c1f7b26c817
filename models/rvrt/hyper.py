"""Reads RVRT's hyper-parameters from a state dict."""

from __future__ import annotations

import math
import re

from ...core.errors import CheckpointError
from ..architecture import Hyper, State
from ..checkpoints.construction import depths_of, shape_of
from .alignment import TAPS
from .propagation import BRANCHES, CLIP

_BLOCK = re.compile(r"(\d{1,9})\.residual_group\.blocks\.(\d{1,9})\.")
_MAX_STEPS = 4  # doublings of the upsampler that are read from keys
_STAGES = ("feat_extract", "backbone.backward_1", "reconstruction")


def rvrt_hyper(state: State) -> Hyper:
    """Return the constructor arguments that can be read from the tensors.

    The heads of the alignment cannot be read: as many as groups are assumed, as published. Without
    position bias neither can ``window_size`` and ``num_heads``.
    """
    small = "feat_extract.1.weight" in state
    stages = ("feat_extract.6" if small else "feat_extract", *_STAGES[1:])
    dim = shape_of(state, "conv_before_upsampler.0.weight", 5)[1]
    inputs = shape_of(state, f"feat_extract.{'1' if small else 'main.1'}.weight", 5)[1]
    offsets = shape_of(state, "deform_align.backward_1.conv_offset.10.weight", 5)[0]
    hidden = shape_of(state, f"{stages[0]}.main.5.0.residual_group.blocks.0.mlp.fc1.weight", 2)[0]
    groups = offsets // (CLIP * TAPS**2 * 2)
    depths = [_depth(state, stage) for stage in stages]
    convolutions = [stages[0], *(f"backbone.{name}" for name in BRANCHES), stages[2]]
    widths = [dim if small else inputs, *(place * dim for place in range(2, 6)), 5 * dim]
    return {
        "upscale": 1 if small else _upscale(state),
        "in_chans": inputs,
        "embed_dim": dim,
        "mlp_ratio": hidden / dim,
        "num_blocks": [count for count, _ in depths],
        "depths": [depth for _, depth in depths],
        "inputconv_groups": [
            max(1, width // shape_of(state, f"{stage}.main.1.weight", 5)[1])
            for stage, width in zip(convolutions, widths, strict=True)
        ],
        "deformable_groups": groups,
        "attention_heads": groups,
    } | _windows(state, stages)


def _depth(state: State, stage: str) -> tuple[int, int]:
    start = f"{stage}.main.5."
    keys = (key.removeprefix(start) for key in state if key.startswith(start))
    depths = depths_of(keys, _BLOCK)
    if len({*depths}) > 1:
        raise CheckpointError(f"{stage} has groups of {depths} blocks; expected equally many")
    return len(depths), depths[0]


def _upscale(state: State) -> int:
    outputs, width, *_ = shape_of(state, "upsampler.0.weight", 5)
    steps = [key for key in state if re.fullmatch(r"upsampler\.\d+\.weight", key)]
    return 3 if outputs == 9 * width else 2 ** min(len(steps) - 1, _MAX_STEPS)


def _windows(state: State, stages: tuple[str, ...]) -> Hyper:
    names = [
        f"{stage}.main.5.0.residual_group.blocks.0.attn.relative_position_bias_table"
        for stage in stages
    ]
    tables = [shape_of(state, name, 2) for name in names if name in state]
    if not tables:
        return {"position_bias": False, "mask": False}
    if len(tables) < len(stages):
        raise CheckpointError(
            f"{len(tables)} of {len(stages)} stages have a relative_position_bias_table: "
            "expected all or none"
        )
    side = (math.isqrt(tables[0][0]) + 1) // 2
    return {"window_size": [CLIP, side, side], "num_heads": [heads for _, heads in tables]}
