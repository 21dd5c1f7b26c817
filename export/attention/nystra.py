"""Mechanism ``nystra``: the kernel Nystrom of PnP-Nystra, equations 2-7 and algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...models.geometry import TokenGeometry, WindowGeometry
from ...plugins.operators import attention
from ...plugins.operators.window_nystrom import torch_op
from ...plugins.operators.windows_torch import (
    merge,
    partition,
    window_landmarks,
    window_regions,
)
from .mechanism import Form, SiteParameters, masked
from .tokens import linear_tokens


@dataclass(frozen=True)
class Windows:
    """Kernel Nystrom at a window site; a position bias is dropped."""

    parameters: SiteParameters
    form: Form

    def __call__(self, qkv: Tensor, bias_table: Tensor | None, geometry: WindowGeometry) -> Tensor:
        """Return the attention of qkv; shapes as ``models.sites.WindowSite`` says."""
        compute = (
            torch.ops.nystra.window_nystrom if self.form == "operator" else torch_op.window_nystrom
        )
        out: Tensor = compute(qkv, **self._attributes(geometry))
        return out

    def guarded_share(
        self, qkv: Tensor, bias_table: Tensor | None, geometry: WindowGeometry
    ) -> float:
        """Return the share of (token, head) pairs that the guard touches, 0..1."""
        return self.with_share(qkv, geometry)[1]

    def with_share(self, qkv: Tensor, geometry: WindowGeometry) -> tuple[Tensor, float]:
        """Return the attention of qkv in plain PyTorch, and ``guarded_share``."""
        one = self.parameters
        q, k, v = partition(qkv, geometry)
        sides = qkv.shape[1:-1]
        regions = None
        if masked(one, geometry):
            regions = window_regions(sides, geometry, one.landmarks, qkv.device)
        out, kept = attention.nystrom_terms(
            q,
            k,
            v,
            window_landmarks(q, geometry, *one.landmarks),
            window_landmarks(k, geometry, *one.landmarks),
            scale=geometry.scale,
            iterations=one.iterations,
            batch_init=one.init == "batch",
            threshold=one.threshold,
            guard=one.guard,
            regions=regions,
        )
        return merge(out, sides, geometry), float((kept < 1).double().mean())

    def _attributes(self, geometry: WindowGeometry) -> dict[str, Any]:
        one = self.parameters
        return geometry.attributes() | {
            "mask": masked(one, geometry),
            "landmark_rows": one.landmarks[0],
            "landmark_cols": one.landmarks[1],
            "iterations": one.iterations,
            "batch_init": int(one.init == "batch"),
            "threshold": one.threshold,
            "guard": one.guard,
        }


@dataclass(frozen=True)
class Tokens:
    """Kernel Nystrom at a token site, from standard operators and the pseudoinverse."""

    parameters: SiteParameters
    form: Form

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, geometry: TokenGeometry
    ) -> Tensor:
        """Return the attention of q, k, v; shapes as ``models.sites.TokenSite`` says."""
        one = self.parameters
        return linear_tokens(
            "nystrom_attention", q, k, v, geometry, one, threshold=one.threshold, guard=one.guard
        )
