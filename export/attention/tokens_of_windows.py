"""Windows with overlapping key windows as token sites: each window is a batch element."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ...models.geometry import TokenGeometry, WindowGeometry
from ...models.sites import TokenImplementation
from ...plugins.operators.window_softmax.torch_op import window_bias
from ...plugins.operators.windows_torch import merge, partition


def tokens_of(geometry: WindowGeometry) -> TokenGeometry:
    """Return the geometry of the queries and keys of one window."""
    return TokenGeometry(
        geometry.window, geometry.key_window, geometry.scale, margin=geometry.margin
    )


@dataclass(frozen=True)
class TokensOfWindows:
    """A mechanism of token sites at a window site; interface of ``models.sites.WindowSite``.

    Attributes:
        tokens: The implementation for each window.
    """

    tokens: TokenImplementation

    def __call__(self, qkv: Tensor, bias_table: Tensor | None, geometry: WindowGeometry) -> Tensor:
        """Return the attention of qkv."""
        q, k, v = (part.flatten(0, 1) for part in partition(qkv, geometry))
        bias = None if bias_table is None else window_bias(bias_table, geometry).unsqueeze(0)
        out = self.tokens(q, k, v, bias, tokens_of(geometry))
        return merge(out.unflatten(0, (qkv.shape[0], -1)), qkv.shape[1:-1], geometry)
