"""Reads SST's hyper-parameters from a state dict."""

from __future__ import annotations

import math
import re
from typing import Any

from ...core.errors import CheckpointError, NystraError
from ..architecture import Hyper, State
from ..checkpoints.construction import depths_of, shape_of
from ..layers.attention_types import attention_hyper
from .network import CPE

PUBLISHED_WINDOWS = {
    "SST-light": (8, 16, 32, 16, 32, 64),
    "SST and SST-Large": (16, 32, 64, 16, 32, 64),
    "any Plus form and SST-XL": (16, 32, 48, 32, 48, 96),
}
"""The windows of the layers of a block: a variant and its Plus variant have the same tensors."""

_LAYER = re.compile(r"body\.(\d{1,9})\.(\d{1,9})\.norm_attn\.weight")


def sst_hyper(state: State) -> Hyper:
    """Return the constructor arguments that can be read from the tensors.

    ``window_sizes`` can be read for two types of attention that no published network has, and
    ``upscaling_factor`` for all upsamplers except "nn+conv".

    Raises:
        CheckpointError: Tensors are missing, or numbered with a gap.
    """
    dim = shape_of(state, "proj.weight", 4)[0]
    depths = depths_of(state, _LAYER)
    if len({*depths}) > 1:
        raise CheckpointError(f"blocks of {depths} layers; expected equally many in each block")
    layers = [attention_hyper(state, f"body.0.{index}.attn.") for index in range(depths[0])]
    first = layers[0]
    hyper: Hyper = {
        "dim": dim,
        "n_blocks": len(depths),
        "exp_ratio": shape_of(state, "body.0.0.ffn.proj.weight", 4)[0] / dim,
        "attn_type": CPE if "body.0.0.cpe.weight" in state else first["attn_type"],
        "gate_type": first["gate_type"],
        "ranks": [layer.get("rank", 1) for layer in layers],
        "rib_hidden_dim": first.get("rib_hidden_dim", 1),
        "rib_n_freqs": first.get("rib_n_freqs", 0),
    }
    for name, key in (("heads", "num_heads"), ("window", "window_sizes")):
        if all(name in layer for layer in layers):
            hyper[key] = [layer[name] for layer in layers]
    return hyper | upsampler_hyper(state)


def upsampler_hyper(state: State) -> Hyper:
    """Return the hyper-parameters in the tensors under ``upsampler.``."""
    if "upsampler.feature_conv.weight" in state:
        middle = shape_of(state, "upsampler.feature_conv.weight", 4)[0]
        outputs = shape_of(state, "upsampler.up_conv.weight", 4)[0]
        return {
            "upsampler_type": "pixelshuffle",
            "intermediate_dim": middle,
            "upscaling_factor": math.isqrt(outputs // middle),
        }
    if "upsampler.f.0.weight" in state:
        hyper: Hyper = {
            "upsampler_type": "nn+conv",
            "intermediate_dim": shape_of(state, "upsampler.f.0.weight", 4)[0],
        }
        return hyper | ({"upscaling_factor": 4} if "upsampler.f.8.weight" in state else {})
    outputs = shape_of(state, "upsampler.up_conv.weight", 4)[0]
    return {"upsampler_type": "pixelshuffle_direct", "upscaling_factor": math.isqrt(outputs // 3)}


def require_windows(hyper: Hyper, source: str) -> None:
    """Raise NystraError if the windows are unknown; the message lists the published ones."""
    if hyper.get("window_sizes") is not None:
        return
    published = "; ".join(
        f"{name}: {_list_sides(sides)}" for name, sides in PUBLISHED_WINDOWS.items()
    )
    raise NystraError(
        f"{source}: the windows of the {len(hyper['ranks'])} layers of a block cannot be read "
        f"from its tensors: give `hyper` window_sizes as in its training ({published})"
    )


def _list_sides(sides: Any) -> str:
    return f"[{','.join(map(str, sides))}]"
