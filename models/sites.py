"""The two kinds of place where a network computes attention.

A site is a module that keeps its projections and hands the attention itself to its
``mechanism``. As built, the mechanism is exact softmax attention; an export puts another in its
place. A mechanism has no parameters of its own, so the state dict never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor, nn

from ..plugins.operators.attention import softmax_attention
from ..plugins.operators.window_softmax.torch_op import window_softmax


@dataclass(frozen=True)
class WindowGeometry:
    """How a window site looks at its map.

    Attributes:
        heads: number of heads.
        head_dim: size of a query and a key.
        value_dim: size of a value.
        window: rows and columns of a window, in tokens.
        shift: cyclic shift before the partition, rows and columns.
        masked: tokens that are neighbours only through the cyclic shift do not see each other.
        scale: factor of the scores.
    """

    heads: int
    head_dim: int
    value_dim: int
    window: tuple[int, int]
    shift: tuple[int, int]
    masked: bool
    scale: float

    def attributes(self) -> dict[str, Any]:
        """Return the geometry under the attribute names of the window operators."""
        return {
            "heads": self.heads,
            "head_dim": self.head_dim,
            "value_dim": self.value_dim,
            "window_h": self.window[0],
            "window_w": self.window[1],
            "shift_h": self.shift[0],
            "shift_w": self.shift[1],
            "mask": int(self.masked),
            "scale": self.scale,
        }


@dataclass(frozen=True)
class TokenGeometry:
    """How the tokens of a token site lie: the grid that landmarks are pooled on, and the scale."""

    query_grid: tuple[int, int]
    key_grid: tuple[int, int]
    scale: float


WindowMechanism: TypeAlias = Callable[[Tensor, Tensor | None, WindowGeometry], Tensor]
TokenMechanism: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor | None, TokenGeometry], Tensor]


def exact_windows(qkv: Tensor, bias_table: Tensor | None, geometry: WindowGeometry) -> Tensor:
    """Return exact softmax attention in windows; shapes as in ``WindowSite``."""
    table = qkv.new_zeros(1, 1) if bias_table is None else bias_table
    return window_softmax(qkv, table, bias=int(bias_table is not None), **geometry.attributes())


def exact_tokens(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, geometry: TokenGeometry
) -> Tensor:
    """Return exact softmax attention of tokens; shapes as in ``TokenSite``."""
    return softmax_attention(q, k, v, geometry.scale, bias)


class WindowSite(nn.Module):
    """Attention in shifted windows of a map.

    ``mechanism(qkv, bias_table, geometry)`` takes qkv (B, H, W, heads * (2 head_dim + value_dim)),
    packed query, key, value, each (head, channel), H and W multiples of the window, and the
    position bias table ((2 wh - 1)(2 ww - 1), heads) or None, and gives
    (B, H, W, heads * value_dim).
    """

    geometry: WindowGeometry
    relative_position_bias_table: nn.Parameter | None

    def __init__(self, geometry: WindowGeometry) -> None:
        """Start with exact attention."""
        super().__init__()
        self.geometry = geometry
        self.mechanism: WindowMechanism = exact_windows

    def attend(self, qkv: Tensor) -> Tensor:
        """Return the attention of qkv by the present mechanism."""
        return self.mechanism(qkv, self.relative_position_bias_table, self.geometry)


class TokenSite(nn.Module):
    """Attention between lists of tokens.

    ``mechanism(q, k, v, bias, geometry)`` takes q (B, h, N, d), k (B, h, Nk, d), v (B, h, Nk, e)
    and an additive bias broadcastable to (B, h, N, Nk) or None, and gives (B, h, N, e).
    """

    def __init__(self, geometry: TokenGeometry) -> None:
        """Start with exact attention."""
        super().__init__()
        self.geometry = geometry
        self.mechanism: TokenMechanism = exact_tokens

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the attention of q, k, v by the present mechanism."""
        return self.mechanism(q, k, v, bias, self.geometry)
