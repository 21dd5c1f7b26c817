"""Positions as channels of queries and keys: a position bias of low rank, or a rotation.

Scores of a bias of rank R are q k^T / sqrt(d) + p_q p_k^T / sqrt(R), where p_q and p_k (N, R) are
of the places in a window only. So queries are [q, sqrt(d / R) p_q], keys [k, p_k], and the scale is
that of q k^T: one product, without a table, that every mechanism takes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...plugins.operators.window_schema import LARGEST_SIDE
from ..geometry import WindowGeometry
from .map_attention import MapAttention, over_map


def make_geometry(
    dim: int,
    heads: int,
    window: int,
    shift: int = 0,
    *,
    rank: int = 0,
    scale: float | None = None,
) -> WindowGeometry:
    """Return the windows of a map of ``dim`` channels, ``rank`` more in each head's q and k.

    Raises:
        ValueError: The channels are not a multiple of the heads.
    """
    if heads < 1 or dim % heads or not 0 < window <= LARGEST_SIDE:
        raise ValueError(
            f"dim {dim} must be a multiple of num_heads, {heads}, and the window {window} within 1 "
            f"to {LARGEST_SIDE}"
        )
    head_dim = dim // heads
    return WindowGeometry(
        heads=heads,
        head_dim=head_dim + rank,
        value_dim=head_dim,
        window=(window, window),
        shift=(shift, shift),
        scale=head_dim**-0.5 if scale is None else scale,
    )


class PlainAttention(MapAttention):
    """Attention without positions."""

    def __init__(
        self, dim: int, heads: int, window: int, *, shift: int = 0, gate: str | None = None
    ) -> None:
        """Build the layers; arguments as in `LowRankAttention`."""
        super().__init__(dim, make_geometry(dim, heads, window, shift), gate)


class LowRankAttention(MapAttention):
    """Attention with a low-rank position bias; a subclass computes the position features."""

    def __init__(
        self, dim: int, heads: int, window: int, rank: int, *, shift: int, gate: str | None
    ) -> None:
        """Build the layers.

        Args:
            dim: Channels of the map.
            heads: Heads of attention.
            window: Side of a window.
            rank: Rank of the position bias, R.
            shift: Rows and columns by which the map is rolled.
            gate: As in `MapAttention`.
        """
        super().__init__(dim, make_geometry(dim, heads, window, shift, rank=rank), gate)

    def places(self) -> tuple[Tensor, Tensor]:
        """Return p_q and p_k, (heads, N, R) each."""
        raise NotImplementedError

    def pack(self, qkv: Tensor) -> Tensor:
        """Return the packed map with the position features appended to each head's q and k."""
        heads, width = self.geometry.heads, self.geometry.value_dim
        of_queries, of_keys = self.places()
        weight = (width / of_queries.shape[-1]) ** 0.5
        features = torch.cat([of_queries * weight, of_keys]).transpose(0, 1)
        features = features.unflatten(0, self.geometry.window)  # (wh, ww, 2 heads, R)
        images, rows, columns = qkv.shape[:3]
        features = over_map(features, (images * rows, columns), self.geometry)
        features = features.unflatten(0, (images, rows))  # no window spans two images
        queries_keys, values = qkv.split((2 * heads * width, heads * width), -1)
        content = queries_keys.unflatten(-1, (2 * heads, width))
        return torch.cat([torch.cat([content, features], -1).flatten(-2), values], -1)


class StoredPlaces(LowRankAttention):
    """Position features that are parameters (``FlashBias``)."""

    def __init__(
        self, dim: int, heads: int, window: int, rank: int, *, shift: int = 0, gate: str | None
    ) -> None:
        """Build the layers; arguments as in `LowRankAttention`."""
        super().__init__(dim, heads, window, rank, shift=shift, gate=gate)
        for name in ("flashbias_q", "flashbias_k"):
            start = nn.init.trunc_normal_(torch.zeros(heads, window**2, rank), std=0.02)
            self.register_parameter(name, nn.Parameter(start))

    def places(self) -> tuple[Tensor, Tensor]:
        """Return p_q and p_k, (heads, N, R) each."""
        return self.get_parameter("flashbias_q"), self.get_parameter("flashbias_k")


class ComputedPlaces(LowRankAttention):
    """Position features from a small network of the coordinates (``RIB``, ``RIBSiren``)."""

    axis: Tensor

    def __init__(
        self,
        dim: int,
        heads: int,
        window: int,
        rank: int,
        *,
        hidden: int,
        frequencies: int,
        sine: bool = False,
        shift: int = 0,
        gate: str | None = None,
    ) -> None:
        """Build the layers.

        Args:
            dim: Channels of the map.
            heads: Heads of attention.
            window: Side of a window.
            rank: Rank of the position bias, R.
            hidden: Width of the hidden layer.
            frequencies: Frequencies of sines and cosines of each coordinate, each twice the one
                before.
            sine: The hidden layer ends in a sine (``RIBSiren``), else in a ReLU.
            shift: Rows and columns by which the map is rolled.
            gate: As in `MapAttention`.
        """
        super().__init__(dim, heads, window, rank, shift=shift, gate=gate)
        self.sine = sine
        # Of rows as of columns. In this order: the highest frequency amplifies rounding errors.
        x = 2 * (torch.arange(window, dtype=torch.float32) + 0.5) / window - 1
        waves = [wave(2**i * x) for i in range(frequencies) for wave in (torch.sin, torch.cos)]
        self.register_buffer("axis", torch.stack([x, *waves], -1), persistent=False)
        self.to_hidden = nn.Parameter(torch.empty(2 * (1 + 2 * frequencies), hidden))
        self.hidden_b = nn.Parameter(torch.zeros(1, hidden))
        self.to_q = nn.Parameter(torch.empty(heads, hidden, rank))
        self.to_k = nn.Parameter(torch.empty(heads, hidden, rank))
        for weight in (self.to_hidden, self.to_q, self.to_k):
            nn.init.normal_(weight, std=weight.shape[-2] ** -0.5)

    def places(self) -> tuple[Tensor, Tensor]:
        """Return p_q and p_k, (heads, N, R) each."""
        across, down = self.axis @ self.to_hidden[0::2], self.axis @ self.to_hidden[1::2]
        hidden = down[:, None] + across + self.hidden_b
        hidden = torch.sin(30 * hidden) if self.sine else hidden.relu()
        hidden = hidden.flatten(0, 1)  # (N, hidden)
        return hidden @ self.to_q, hidden @ self.to_k


class RotaryAttention(MapAttention):
    """Queries and keys rotated by angles linear in row and column (``RoPEViT``); scale 1."""

    def __init__(
        self, dim: int, heads: int, window: int, *, shift: int = 0, gate: str | None = None
    ) -> None:
        """Build the layers; arguments as in `LowRankAttention`."""
        super().__init__(dim, make_geometry(dim, heads, window, shift, scale=1.0), gate)
        if self.geometry.head_dim % 2:
            raise ValueError(
                f"{dim} channels of {heads} heads cannot be split into pairs to rotate"
            )
        self.rope_freqs = nn.Parameter(torch.randn(2, heads, self.geometry.head_dim // 2))

    def pack(self, qkv: Tensor) -> Tensor:
        """Return the packed map, queries and keys rotated."""
        heads, width = self.geometry.heads, self.geometry.head_dim
        rows, columns = (torch.arange(side, device=qkv.device) for side in self.geometry.window)
        of_columns, of_rows = self.rope_freqs
        angles = columns[:, None, None] * of_columns + rows[:, None, None, None] * of_rows
        angles = over_map(angles, (qkv.shape[1], qkv.shape[2]), self.geometry)
        cos, sin = angles.cos(), angles.sin()  # (H, W, heads, head_dim / 2)
        queries_keys, values = qkv.split((2 * heads * width, heads * width), -1)
        first, second = queries_keys.unflatten(-1, (2, heads, width // 2, 2)).unbind(-1)
        cos, sin = cos.unsqueeze(-3), sin.unsqueeze(-3)
        rotated = torch.stack([first * cos - second * sin, first * sin + second * cos], -1)
        return torch.cat([rotated.flatten(-4), values], -1)
