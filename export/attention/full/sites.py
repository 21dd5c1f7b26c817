"""Mechanism ``full``: exact softmax attention.

One operator at windows of rows and columns, and of frames without a position bias (with one, they
are standard operators), between lists of many tokens, and over whole maps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ....models.geometry import PatchGeometry, TokenGeometry, WindowGeometry
from ....models.layers.patches import exact_patches
from ....models.sites import exact_windows
from ....plugins.operators.attention.torch_op import attention
from ....plugins.operators.attention_torch import softmax_attention
from ....plugins.operators.window_cosine.torch_op import window_cosine
from ....plugins.operators.window_overlap.torch_op import window_overlap
from ..frame_layout import as_2d, refusal, to_2d, to_3d
from ..implementation import Form, in_form, table_of
from .parameters import Full

FEWEST_SCORES = 1 << 20
"""Queries times keys from which attention between tokens is one node: below, onnxruntime's own
operators take up to a third less time, and memory for few scores; at 1,024 tokens the node is
faster (measured at 2 heads of 32 and 6 of 64 channels)."""


@dataclass(frozen=True)
class Windows:
    """Exact attention at a window site; interface of ``models.sites.WindowSite``."""

    mechanism: Full
    form: Form

    def __call__(
        self,
        qkv: Tensor,
        bias_table: Tensor | None,
        geometry: WindowGeometry,
    ) -> Tensor:
        """Return the attention of qkv."""
        mask = self.mechanism.choose_mask(geometry)
        has_bias = int(bias_table is not None)
        standard = len(geometry.window) != 2 and (has_bias or refusal(geometry))
        if self.form == "plain" or standard:
            given_mask = replace(geometry, masked=bool(mask))
            return exact_windows(qkv, bias_table, given_mask)
        table = table_of(qkv, bias_table)
        attributes = as_2d(geometry).attributes() | {"mask": mask, "bias": has_bias}
        flat = to_2d(qkv, geometry)
        out: Tensor = torch.ops.nystra.window_softmax(flat, table, **attributes)
        return to_3d(out, qkv, geometry)

    def by_cosines(
        self,
        qkv: Tensor,
        bias_table: Tensor | None,
        logit_scale: Tensor,
        epsilon: float,
        geometry: WindowGeometry,
    ) -> Tensor:
        """Return the attention of qkv in windows of rows and columns, as ``window_cosine``."""
        table = table_of(qkv, bias_table)
        has_bias = int(bias_table is not None)
        more = {"mask": self.mechanism.choose_mask(geometry), "bias": has_bias}
        attributes = geometry.attributes() | more | {"epsilon": epsilon}
        compute = in_form(window_cosine, self.form)
        return compute(qkv, table, logit_scale, **attributes)


@dataclass(frozen=True)
class Overlaps:
    """Exact attention at a window site whose key windows overlap."""

    mechanism: Full
    form: Form

    def __call__(
        self,
        qkv: Tensor,
        bias_table: Tensor | None,
        geometry: WindowGeometry,
    ) -> Tensor:
        """Return the attention of qkv; shapes as in ``models.sites.WindowSite``."""
        table = table_of(qkv, bias_table)
        attributes = geometry.attributes() | {"bias": int(bias_table is not None)}
        return in_form(window_overlap, self.form)(qkv, table, **attributes)


@dataclass(frozen=True)
class Tokens:
    """Exact attention at a token site; interface of ``models.sites.TokenSite``."""

    mechanism: Full
    form: Form

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        geometry: TokenGeometry,
    ) -> Tensor:
        """One node where the scores of a head are many, or of an unknown number."""
        counts = q.shape[2], k.shape[2]
        is_fixed = all(isinstance(count, int) for count in counts)
        few = is_fixed and math.prod(counts) < FEWEST_SCORES
        if self.form == "plain" or few or q.dtype == torch.float64:  # which no kernel takes
            return softmax_attention(q, k, v, geometry.scale, bias)
        added = q.new_zeros(1, 1, 1, 1)
        if bias is not None:
            added = bias.to(q.dtype)
        added = added[(None,) * (4 - added.dim())]
        more = {"bias": int(bias is not None), "scale": geometry.scale}
        compute = in_form(attention, self.form)
        return compute(q, k, v, added, **more)


@dataclass(frozen=True)
class Patches:
    """Exact attention at a patch site; interface of ``models.sites.PatchSite``."""

    mechanism: Full
    form: Form

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_mask: Tensor | None,
        geometry: PatchGeometry,
    ) -> Tensor:
        """Return the value patches, weighted by the matches of query and key patches."""
        return exact_patches(query, key, value, key_mask, geometry)
