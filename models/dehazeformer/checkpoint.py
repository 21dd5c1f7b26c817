"""Loading DehazeFormer: its hyper-parameters and its facts."""

from __future__ import annotations

import math
import re

from ...core.errors import CheckpointError, NystraError
from ...core.ports.port import Port
from ..architecture import Architecture, BuiltNetwork, Hyper, Request, State
from ..checkpoints.construction import construct, depths_of, merge_hyper, shape_of
from ..facts import Facts
from .network import MULTIPLE, STAGES, DehazeFormer

_BLOCK = re.compile(r"layer(\d)\.blocks\.(\d{1,9})\.mlp\.mlp\.0\.weight")
_POSITIONS = ".relative_positions"
"""A buffer that published files hold: the network computes it again."""

_RANGE = (-1.0, 1.0)


def load(state: State, request: Request) -> BuiltNetwork:
    """Return the network of a state dict."""
    hyper = merge_hyper(dehazeformer_hyper(state), request)
    if hyper.get("window_size") is None:
        raise NystraError(
            f"{request.source}: the window cannot be read from its tensors, since its buffers "
            "were not saved: give `window_size`, 8 for the published networks"
        )
    network = construct(DehazeFormer, hyper, state, request.source, optional_keys=(_POSITIONS,))
    return BuiltNetwork(network, dehazeformer_facts(network, request.license), hyper)


def dehazeformer_hyper(state: State) -> Hyper:
    """Return the constructor arguments; the window can be read only from buffers, if saved.

    Raises:
        CheckpointError: Tensors are missing, or numbered with a gap.
    """
    depths = depths_of(state, _BLOCK, [str(number + 1) for number in range(STAGES)])
    stages = [_stage(state, number + 1, depth) for number, depth in enumerate(depths)]
    hyper: Hyper = {"depths": depths}
    for name in ("embed_dims", "mlp_ratios", "num_heads", "attn_ratio", "conv_type"):
        hyper[name] = [stage[name] for stage in stages]
    tokens = next((tuple(state[key].shape) for key in state if key.endswith(_POSITIONS)), None)
    if tokens is not None:
        hyper["window_size"] = math.isqrt(tokens[0]) if tokens else 0
    return hyper


def _stage(state: State, number: int, depth: int) -> Hyper:
    block = f"layer{number}.blocks.{{}}."
    hidden, dim, *_ = shape_of(state, block.format(0) + "mlp.mlp.0.weight", 4)
    attending = [index for index in range(depth) if f"{block.format(index)}attn.QK.weight" in state]
    if attending != list(range(depth - len(attending), depth)):
        raise CheckpointError(
            f"blocks {attending} of layer{number} have attention; expected only the last ones to"
        )
    heads = 1
    if attending:
        key = f"{block.format(attending[-1])}attn.attn.meta.2.weight"
        heads = shape_of(state, key, 2)[0]
    convolution = f"{block.format(0)}attn.conv."
    kind = "DWConv" if f"{convolution}weight" in state else None
    return {
        "embed_dims": dim,
        "mlp_ratios": hidden / dim,
        "num_heads": heads,
        "attn_ratio": len(attending) / depth,
        "conv_type": "Conv" if f"{convolution}0.weight" in state else kind,
    }


def dehazeformer_facts(network: DehazeFormer, license_name: str) -> Facts:
    """Return the facts of a network."""
    lengths = {"channels": 3}
    return Facts(
        architecture="dehazeformer",
        task="restoration",
        inputs=(Port("input", "image", lengths=lengths, range=_RANGE, multiple=MULTIPLE),),
        outputs=(Port("output", "picture", lengths=lengths, range=_RANGE),),
        tiling="internal",
        license=license_name,
    )


ARCHITECTURE = Architecture(load)
