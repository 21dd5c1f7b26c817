"""Mechanism ``full``: exact softmax attention, as one operator at windows of two sides."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ....models.geometry import PatchGeometry, TokenGeometry, WindowGeometry
from ....models.patches import exact_patches
from ....models.sites import exact_map, exact_tokens, exact_windows
from ..computing import Form
from .parameters import Full


@dataclass(frozen=True)
class Windows:
    """Exact attention at a window site; called as ``models.sites.WindowSite`` says."""

    parameters: Full
    form: Form

    def __call__(self, qkv: Tensor, bias_table: Tensor | None, geometry: WindowGeometry) -> Tensor:
        """Return the attention of qkv."""
        mask = self.parameters.masked(geometry)
        if self.form == "plain" or len(geometry.window) != 2:  # the operator knows two sides
            return exact_windows(qkv, bias_table, replace(geometry, masked=bool(mask)))
        table = qkv.new_zeros(1, 1) if bias_table is None else bias_table
        attributes = geometry.attributes() | {"mask": mask, "bias": int(bias_table is not None)}
        out: Tensor = torch.ops.nystra.window_softmax(qkv, table, **attributes)
        return out


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
