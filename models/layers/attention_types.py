"""The published types of attention of SST and ESC-RIB, by name."""

from __future__ import annotations

import math

from ...core.errors import CheckpointError
from ..architecture import Hyper, State
from ..checkpoints.construction import shape_of
from .map_attention import MapAttention, TableAttention
from .position_channels import (
    ComputedPlaces,
    PlainAttention,
    RotaryAttention,
    StoredPlaces,
    make_geometry,
)

TABLES = ("Naive", "SDPA", "Flex")
"""Types with a table of position biases, which compute the same function in different ways."""

ATTENTION_TYPES = ("RIB", "RIBSiren", "FlashBias", *TABLES, "RoPEViT", "NoPE")


def attention_of_type(
    kind: str,
    dim: int,
    heads: int,
    window: int,
    *,
    rank: int,
    hidden: int,
    frequencies: int,
    gate: str | None,
    shift: int = 0,
) -> MapAttention:
    """Return attention of a published type.

    Args:
        kind: One of `ATTENTION_TYPES`.
        dim: Channels of the map.
        heads: Heads of attention.
        window: Side of a window.
        rank: Rank of the position bias, for RIB, RIBSiren and FlashBias.
        hidden: Width of the network of positions, for RIB and RIBSiren.
        frequencies: Frequencies of the coordinates, for RIB.
        gate: As in `MapAttention`.
        shift: Rows and columns by which the map is rolled.

    Raises:
        ValueError: There is no such type.
    """
    if kind in ("RIB", "RIBSiren"):
        sine = kind == "RIBSiren"
        return ComputedPlaces(
            dim,
            heads,
            window,
            rank,
            hidden=hidden,
            frequencies=0 if sine else frequencies,
            sine=sine,
            shift=shift,
            gate=gate,
        )
    if kind == "FlashBias":
        return StoredPlaces(dim, heads, window, rank, shift=shift, gate=gate)
    if kind in TABLES:
        return TableAttention(dim, make_geometry(dim, heads, window, shift), gate)
    if kind == "RoPEViT":
        return RotaryAttention(dim, heads, window, shift=shift, gate=gate)
    if kind == "NoPE":
        return PlainAttention(dim, heads, window, shift=shift, gate=gate)
    raise ValueError(f"attn_type {kind!r} is none of {', '.join(ATTENTION_TYPES)}")


def attention_hyper(state: State, prefix: str) -> Hyper:
    """Read the hyper-parameters of an attention layer from its tensors.

    Args:
        state: The tensors by key.
        prefix: Common beginning of its keys, ``body.0.0.attn.``.

    Returns:
        ``attn_type`` and ``gate_type``; also, if the type has them, ``heads``, ``rank``,
        ``rib_hidden_dim``, ``rib_n_freqs`` and ``window``.

    Raises:
        CheckpointError: Tensors are missing or do not belong to such a layer.
    """
    hyper: Hyper = {"gate_type": _gate(state, prefix)}
    if f"{prefix}to_hidden" in state:
        heads, hidden, rank = shape_of(state, f"{prefix}to_q", 3)
        coordinates = shape_of(state, f"{prefix}to_hidden", 2)[0]
        if (coordinates - 2) % 4:
            raise CheckpointError(
                f"{prefix}to_hidden has {coordinates} rows; expected 2 + 4 for each frequency"
            )
        kind = "RIBSiren" if coordinates == 2 else "RIB"
        frequencies = (coordinates - 2) // 4
        read = {"rank": rank, "rib_hidden_dim": hidden, "rib_n_freqs": frequencies}
        return hyper | {"attn_type": kind, "heads": heads} | read
    if f"{prefix}flashbias_q" in state:
        heads, tokens, rank = shape_of(state, f"{prefix}flashbias_q", 3)
        side = _root(tokens, f"{prefix}flashbias_q")
        return hyper | {"attn_type": "FlashBias", "heads": heads, "rank": rank, "window": side}
    if f"{prefix}relative_position_bias" in state:
        heads, entries = shape_of(state, f"{prefix}relative_position_bias", 2)
        side = (_root(entries, f"{prefix}relative_position_bias") + 1) // 2
        return hyper | {"attn_type": "Naive", "heads": heads, "window": side}
    if f"{prefix}rope_freqs" in state:
        heads = shape_of(state, f"{prefix}rope_freqs", 3)[1]
        return hyper | {"attn_type": "RoPEViT", "heads": heads}
    return hyper | {"attn_type": "NoPE"}


def _gate(state: State, prefix: str) -> str | None:
    if f"{prefix}gate.0.weight" not in state:
        return None
    return "DWC" if f"{prefix}gate.1.weight" in state else "Linear"


def _root(number: int, key: str) -> int:
    side = math.isqrt(number)
    if side * side != number:
        raise CheckpointError(f"{key} has {number} positions; expected a square number")
    return side
