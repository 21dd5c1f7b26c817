"""Mechanism ``full``: exact softmax attention, as one operator a window site."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...models.sites import TokenGeometry, WindowGeometry, exact_tokens
from ...plugins.operators.window_softmax import torch_op
from .mechanism import Form, SiteParameters, masked


@dataclass(frozen=True)
class Windows:
    """Exact attention at a window site; called as ``models.sites.WindowSite`` says."""

    parameters: SiteParameters
    form: Form

    def __call__(self, qkv: Tensor, bias_table: Tensor | None, geometry: WindowGeometry) -> Tensor:
        """Return the attention of qkv."""
        attributes = geometry.attributes() | {"mask": masked(self.parameters, geometry)}
        table = qkv.new_zeros(1, 1) if bias_table is None else bias_table
        compute = torch.ops.nystra.window_softmax if self.form == "operator" else _plain
        out: Tensor = compute(qkv, table, bias=int(bias_table is not None), **attributes)
        return out


_plain = torch_op.window_softmax


@dataclass(frozen=True)
class Tokens:
    """Exact attention at a token site; called as ``models.sites.TokenSite`` says."""

    parameters: SiteParameters
    form: Form

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, geometry: TokenGeometry
    ) -> Tensor:
        """Return the attention of q, k, v."""
        return exact_tokens(q, k, v, bias, geometry)
