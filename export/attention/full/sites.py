"""Mechanism ``full``: exact softmax attention, as one operator at a window site."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ....models.geometry import PatchGeometry, TokenGeometry, WindowGeometry
from ....models.patches import exact_patches
from ....models.sites import exact_map, exact_tokens
from ....plugins.operators.window_softmax import torch_op
from ..computing import Form
from .parameters import Full


@dataclass(frozen=True)
class Windows:
    """Exact attention at a window site; called as ``models.sites.WindowSite`` says."""

    parameters: Full
    form: Form

    def __call__(self, qkv: Tensor, bias_table: Tensor | None, geometry: WindowGeometry) -> Tensor:
        """Return the attention of qkv."""
        attributes = geometry.attributes() | {"mask": self.parameters.masked(geometry)}
        table = qkv.new_zeros(1, 1) if bias_table is None else bias_table
        compute = torch.ops.nystra.window_softmax if self.form == "operator" else _plain
        out: Tensor = compute(qkv, table, bias=int(bias_table is not None), **attributes)
        return out


_plain = torch_op.window_softmax


@dataclass(frozen=True)
class Tokens:
    """Exact attention at a token site; called as ``models.sites.TokenSite`` says."""

    parameters: Full
    form: Form

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, geometry: TokenGeometry
    ) -> Tensor:
        """Return the attention of q, k, v."""
        return exact_tokens(q, k, v, bias, geometry)


@dataclass(frozen=True)
class Patches:
    """Exact attention at a patch site; called as ``models.sites.PatchSite`` says."""

    parameters: Full
    form: Form

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_mask: Tensor | None,
        geometry: PatchGeometry,
    ) -> Tensor:
        """Return the value patches as the query's patches match the key's."""
        return exact_patches(query, key, value, key_mask, geometry)


@dataclass(frozen=True)
class Maps:
    """Exact attention at a map site; called as ``models.sites.MapSite`` says."""

    parameters: Full
    form: Form

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """Return the attention of q, k, v."""
        return exact_map(q, k, v, scale)
