"""Mechanism ``performer``: attention by random features, trained with or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ....models.geometry import TokenGeometry
from ....models.vit.performer import orthogonal_features, performer_attention
from ..implementation import Form
from .parameters import Performer


@dataclass(frozen=True)
class Tokens:
    """Performer at a token site, of standard operators."""

    mechanism: Performer
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
        own = getattr(self.site, "by_features", None)
        if own is not None:
            out: Tensor = own(q, k, v, bias, geometry)
            return out
        mechanism = self.mechanism
        directions = orthogonal_features(mechanism.features, q.shape[-1], mechanism.feature_seed)
        return performer_attention(q, k, v, directions.to(q), geometry.scale)
