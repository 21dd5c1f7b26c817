"""Mechanism ``nystromformer``: the row-normalised Nystrom form (Xiong et al., 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...models.geometry import TokenGeometry, WindowGeometry
from ...plugins.operators.window_nystromformer import torch_op
from .mechanism import Form, SiteParameters, masked
from .tokens import linear_tokens


@dataclass(frozen=True)
class Windows:
    """Row-normalised Nystrom at a window site; a position bias is dropped."""

    parameters: SiteParameters
    form: Form

    def __call__(self, qkv: Tensor, bias_table: Tensor | None, geometry: WindowGeometry) -> Tensor:
        """Return the attention of qkv; shapes as ``models.sites.WindowSite`` says."""
        compute = (
            torch.ops.nystra.window_nystromformer
            if self.form == "operator"
            else torch_op.window_nystromformer
        )
        out: Tensor = compute(qkv, **self._attributes(geometry))
        return out

    def _attributes(self, geometry: WindowGeometry) -> dict[str, Any]:
        one = self.parameters
        return geometry.attributes() | {
            "mask": masked(one, geometry),
            "landmark_rows": one.landmarks[0],
            "landmark_cols": one.landmarks[1],
            "iterations": one.iterations,
            "batch_init": int(one.init == "batch"),
        }


@dataclass(frozen=True)
class Tokens:
    """Row-normalised Nystrom at a token site, from standard operators and the pseudoinverse."""

    parameters: SiteParameters
    form: Form

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, geometry: TokenGeometry
    ) -> Tensor:
        """Return the attention of q, k, v; shapes as ``models.sites.TokenSite`` says."""
        return linear_tokens("nystromformer_attention", q, k, v, geometry, self.parameters)
