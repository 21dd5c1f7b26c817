"""Mechanism ``linformer``: softmax attention to few tokens, by trained projections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ....models.geometry import TokenGeometry
from ....models.vit.linformer import linformer_attention
from ..implementation import Form
from .parameters import Linformer


@dataclass(frozen=True)
class Tokens:
    """Linformer at a token site that holds its matrices; of standard operators."""

    mechanism: Linformer
    form: Form
    site: Any

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        geometry: TokenGeometry,
    ) -> Tensor:
        """Return the attention of q, k, v; shapes as in ``models.sites.TokenSite``."""
        projections = (self.site.E_K, self.site.E_V)
        return linformer_attention(q, k, v, *projections, geometry.scale)
