"""The kinds of place where a network computes attention.

A site is a module that keeps its projections and hands the attention itself to its
``mechanism``. As built, the mechanism is exact softmax attention; an export puts another in its
place. A mechanism has no parameters of its own, so the state dict never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from torch import Tensor, nn

from ..plugins.operators.attention import softmax_attention
from ..plugins.operators.window_softmax.torch_op import window_softmax
from .patches import exact_patches


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


@dataclass(frozen=True)
class PatchGeometry:
    """What a patch site compares, and what it pastes where patches match.

    With P(m, i) the ``patch`` x ``patch`` neighbourhood of place i of map m (all channels; outside
    the map as ``border`` says), the score of query i and key j is

    * ``dot``: <P(query, i), P(key, j) / n(j)>, n as ``key_norm`` says;
    * ``l2``: -|P(query, i) - P(key, j)|^2;

    then the fusing, the mask, and a softmax over the keys of ``scale`` times the score.

    Attributes:
        patch: odd side of the compared patches.
        metric: ``dot`` or ``l2``.
        scale: factor of the scores, an inverse temperature.
        key_norm: n(j) of ``dot``: ``none`` is 1, ``floor`` max(|P|, key_epsilon), ``ridge``
            sqrt(sum of (P^2 + key_epsilon)).
        key_epsilon: of ``key_norm``.
        border: outside of query and key map: ``zero``, or ``replicate`` for the edge.
        shrink: query, key and mask are taken at every ``shrink``-th row and column, the first
            one included; H, W, Hk, Wk below are the sizes after it.
        fuse: side of the diagonal filter of the score matrix (``patches.fuse_scores``), 0 for none.
        value_patch: side of the value patches in pixels of the value map.
        value_stride: their step; key (y, x) owns the value patch whose first pixel is
            stride * (y, x) - (value_patch - value_stride) / 2, zero outside the map. Query (y, x)
            pastes the weighted mean at the same place of the output; overlaps add up.
        divisor: the sum of the overlaps is divided by it.
        hard: take the best key (all of them where they tie) instead of the softmax.
    """

    patch: int
    metric: Literal["dot", "l2"] = "dot"
    scale: float = 1.0
    key_norm: Literal["none", "floor", "ridge"] = "none"
    key_epsilon: float = 1e-4
    border: Literal["zero", "replicate"] = "zero"
    shrink: int = 1
    fuse: int = 0
    value_patch: int = 1
    value_stride: int = 1
    divisor: float = 1.0
    hard: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for patches without a centre and values without a whole reach."""
        if self.patch % 2 == 0 or self.fuse % 2 == 0 < self.fuse:
            raise ValueError(f"patch {self.patch} and fuse {self.fuse} must be odd")
        over = self.value_patch - self.value_stride
        if self.value_patch % self.value_stride or over % 2:
            raise ValueError(
                f"value_patch {self.value_patch} must be a multiple of value_stride "
                f"{self.value_stride}, and stand over it by the same on both sides"
            )

    @property
    def reach(self) -> int:
        """How many strides a value patch covers."""
        return self.value_patch // self.value_stride

    @property
    def value_pad(self) -> int:
        """By how many pixels value patches stand over the border of the value map."""
        return (self.value_patch - self.value_stride) // 2


WindowMechanism: TypeAlias = Callable[[Tensor, Tensor | None, WindowGeometry], Tensor]
TokenMechanism: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor | None, TokenGeometry], Tensor]
PatchMechanism: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor | None, PatchGeometry], Tensor]
MapMechanism: TypeAlias = Callable[[Tensor, Tensor, Tensor, float], Tensor]


def exact_windows(qkv: Tensor, bias_table: Tensor | None, geometry: WindowGeometry) -> Tensor:
    """Return exact softmax attention in windows; shapes as in ``WindowSite``."""
    table = qkv.new_zeros(1, 1) if bias_table is None else bias_table
    return window_softmax(qkv, table, bias=int(bias_table is not None), **geometry.attributes())


def exact_tokens(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, geometry: TokenGeometry
) -> Tensor:
    """Return exact softmax attention of tokens; shapes as in ``TokenSite``."""
    return softmax_attention(q, k, v, geometry.scale, bias)


def exact_map(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Return exact softmax attention between all places of a map; shapes as in ``MapSite``."""
    q_tokens, k_tokens, v_tokens = (one.flatten(2).transpose(1, 2)[:, None] for one in (q, k, v))
    out = softmax_attention(q_tokens, k_tokens, v_tokens, scale)[:, 0]
    back: Tensor = out.transpose(1, 2).unflatten(2, (q.shape[2], q.shape[3]))
    return back


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


class PatchSite(nn.Module):
    """Attention between the patches of two maps, with patches of a third one as values.

    ``mechanism(query, key, value, key_mask, geometry)`` takes query (B, C, s H, s W) and key
    (B, C, s Hk, s Wk), s = ``geometry.shrink``, value (B, Cv, t Hk, t Wk),
    t = ``geometry.value_stride``, and key_mask (B or 1, 1, s Hk, s Wk) of 1 (known) and 0, or
    None. A key whose patch holds an unknown place gets no weight; the exact form leaves it in the
    softmax with the score 0, as the published network does. The result is (B, Cv, t H, t W).
    """

    def __init__(self, geometry: PatchGeometry) -> None:
        """Start with exact attention."""
        super().__init__()
        self.geometry = geometry
        self.mechanism: PatchMechanism = exact_patches

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor | None = None
    ) -> Tensor:
        """Return the attention by the present mechanism."""
        return self.mechanism(query, key, value, key_mask, self.geometry)


class MapSite(nn.Module):
    """Attention between all places of a map, whatever its size.

    ``mechanism(q, k, v, scale)`` takes q and k (B, C, H, W) and v (B, Cv, H, W), and gives
    (B, Cv, H, W).
    """

    def __init__(self, scale: float = 1.0) -> None:
        """Start with exact attention."""
        super().__init__()
        self.scale = scale
        self.mechanism: MapMechanism = exact_map

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the attention of q, k, v by the present mechanism."""
        return self.mechanism(q, k, v, self.scale)
