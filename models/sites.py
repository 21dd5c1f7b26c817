"""The kinds of sites, where a network computes attention.

A site is a module with its projections, which calls its ``implementation`` for the attention
itself. As built, that is the trained attention: exact softmax attention, or a mechanism of the
network's own. An export replaces it.

Trained tensors of a mechanism belong to the site, under the keys of the checkpoint: parameters of
the site, read by a method of its class that is the implementation. Sites without such tensors have
none, so the state dicts of their networks are the published ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor, nn

from ..plugins.operators.attention_torch import softmax_attention
from ..plugins.operators.window_softmax.torch_op import softmax_windows
from .geometry import PatchGeometry, TokenGeometry, WindowGeometry
from .layers.patches import exact_patches

WindowImplementation: TypeAlias = Callable[[Tensor, Tensor | None, WindowGeometry], Tensor]
TokenImplementation: TypeAlias = Callable[
    [Tensor, Tensor, Tensor, Tensor | None, TokenGeometry], Tensor
]
PatchImplementation: TypeAlias = Callable[
    [Tensor, Tensor, Tensor, Tensor | None, PatchGeometry], Tensor
]
MapImplementation: TypeAlias = Callable[[Tensor, Tensor, Tensor, float], Tensor]


def exact_windows(qkv: Tensor, bias_table: Tensor | None, geometry: WindowGeometry) -> Tensor:
    """Return exact softmax attention in windows; shapes as in ``WindowSite``."""
    return softmax_windows(qkv, bias_table, geometry)


def exact_tokens(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, geometry: TokenGeometry
) -> Tensor:
    """Return exact softmax attention of tokens; shapes as in ``TokenSite``."""
    return softmax_attention(q, k, v, geometry.scale, bias)


def exact_map(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Return exact softmax attention between all positions of a map; shapes as in ``MapSite``."""
    q_tokens, k_tokens, v_tokens = (
        tensor.flatten(2).transpose(1, 2)[:, None] for tensor in (q, k, v)
    )
    out = softmax_attention(q_tokens, k_tokens, v_tokens, scale)[:, 0]
    back: Tensor = out.transpose(1, 2).unflatten(2, (q.shape[2], q.shape[3]))
    return back


class AttentionSite(nn.Module):
    """The base of sites, with a replaceable implementation, a function or a module."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; an implementation may replace one that is a module."""
        if name == "implementation":
            self._modules.pop(name, None)
        super().__setattr__(name, value)


class WindowSite(AttentionSite):
    """Attention in shifted windows of a map.

    ``implementation(qkv, bias_table, geometry)`` takes qkv
    (B, H, W, heads * (2 head_dim + value_dim)), packed query, key, value, each (head, channel), H
    and W multiples of the window, and the position bias table ((2 wh - 1)(2 ww - 1), heads) or
    None, and returns (B, H, W, heads * value_dim). Maps and windows may have another number of
    axes. Where the key window extends beyond the window (``geometry.margin``), the table is ((wh +
    kh - 1)(ww + kw - 1), heads) for windows of kh x kw keys.

    A subclass has the layers around the attention, and the table, if any, as
    ``relative_position_bias_table``; its ``forward`` calls `attend`.
    """

    geometry: WindowGeometry
    relative_position_bias_table: nn.Parameter | None

    def __init__(self, geometry: WindowGeometry) -> None:
        super().__init__()
        self.geometry = geometry
        self.relative_position_bias_table = None
        self.implementation: WindowImplementation = exact_windows

    def result_shape(self, qkv: Tensor) -> tuple[int, ...]:
        """Return the shape of the attention of qkv."""
        return (*qkv.shape[:-1], self.geometry.heads * self.geometry.value_dim)

    def attend(self, qkv: Tensor) -> Tensor:
        """Return the attention of qkv, computed by the current implementation."""
        return self.implementation(qkv, self.bias_table(), self.geometry)

    def bias_table(self) -> Tensor | None:
        """Return the position biases in the form for implementations."""
        return self.relative_position_bias_table


class TokenSite(AttentionSite):
    """Attention between lists of tokens.

    ``implementation(q, k, v, bias, geometry)`` takes q (B, h, N, d), k (B, h, Nk, d), v
    (B, h, Nk, e) and an additive bias broadcastable to (B, h, N, Nk) or None, and returns (B, h, N,
    e).
    """

    def __init__(self, geometry: TokenGeometry) -> None:
        super().__init__()
        self.geometry = geometry
        self.implementation: TokenImplementation = exact_tokens

    def result_shape(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[int, ...]:
        """Return the shape of the attention of q, k, v."""
        return (*q.shape[:-1], v.shape[-1])

    def attend(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the attention of q, k, v by the current implementation."""
        return self.implementation(q, k, v, bias, self.geometry)


class PatchSite(AttentionSite):
    """Attention between the patches of two maps, with patches of a third one as values.

    ``implementation(query, key, value, key_mask, geometry)`` takes query (B, C, s H, s W) and key
    (B, C, s Hk, s Wk), s = ``geometry.shrink``, value (B, Cv, t Hk, t Wk),
    t = ``geometry.value_stride``, and key_mask (B or 1, 1, s Hk, s Wk) of 1 (known) and 0, or
    None. A key whose patch holds an unknown place gets no weight; the exact form leaves it in the
    softmax with the score 0, as the published network does. The result is (B, Cv, t H, t W).
    """

    def __init__(self, geometry: PatchGeometry) -> None:
        super().__init__()
        self.geometry = geometry
        self.implementation: PatchImplementation = exact_patches

    def result_shape(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[int, ...]:
        """Return the shape of the attention of the three maps."""
        shrink, stride = self.geometry.shrink, self.geometry.value_stride
        rows, columns = ((side + shrink - 1) // shrink * stride for side in query.shape[2:])
        return (*value.shape[:2], rows, columns)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor | None = None
    ) -> Tensor:
        """Return the attention by the current implementation."""
        return self.implementation(query, key, value, key_mask, self.geometry)


class MapSite(AttentionSite):
    """Attention between all positions of a map of any size.

    ``implementation(q, k, v, scale)`` takes q and k (B, C, H, W) and v (B, Cv, H, W), and returns
    (B, Cv, H, W).
    """

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.implementation: MapImplementation = exact_map

    def result_shape(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[int, ...]:
        """Return the shape of the attention of q, k, v."""
        return (*v.shape[:2], *q.shape[2:])

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the attention of q, k, v by the current implementation."""
        return self.implementation(q, k, v, self.scale)
