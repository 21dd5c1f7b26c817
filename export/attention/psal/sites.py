"""Mechanism ``psal``: attention to the k nearest patches or tokens (Cherel et al., 2023).

One ``NystraPatchMatch`` node finds the neighbors of every query; padding, gathering and the
softmax over the scores it returns are standard operators.

* Patch sites compare and paste as in the site's geometry; scores are not fused, since that needs
all of them, and excluded keys are left out of the softmax.
* Window sites take the k nearest tokens of the window by the site's own dot product.
* Token sites do so on their grids.
* Map sites get exact attention in local windows (section 4.6: cross-scale attention by PSAL, the
  in-scale branch local).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ....models.geometry import PatchGeometry, TokenGeometry, WindowGeometry
from ....plugins.operators.window_softmax.torch_op import window_softmax
from ..implementation import Form, in_form
from .parameters import Psal
from .patches import attend_patches
from .tokens import attend_tokens, attend_windows

_PADDED = -1e4
"""Logit of the keys beyond the map in a local window."""


@dataclass(frozen=True)
class Patches:
    """PSAL at a patch site; interface of ``models.sites.PatchSite``."""

    mechanism: Psal
    form: Form

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_mask: Tensor | None,
        geometry: PatchGeometry,
    ) -> Tensor:
        """Return the value patches of the matched keys."""
        return attend_patches(query, key, value, key_mask, geometry, self.mechanism, self.form)


@dataclass(frozen=True)
class Windows:
    """The k nearest tokens of the window; interface of ``models.sites.WindowSite``.

    The search ignores the position bias, which is added to the scores of the matches.
    """

    mechanism: Psal
    form: Form

    def __call__(
        self,
        qkv: Tensor,
        bias_table: Tensor | None,
        geometry: WindowGeometry,
    ) -> Tensor:
        """Return the attention of qkv."""
        mask = self.mechanism.choose_mask(geometry)
        return attend_windows(qkv, bias_table, geometry, mask, self.mechanism, self.form)


@dataclass(frozen=True)
class Tokens:
    """The k nearest tokens of the key grid; interface of ``models.sites.TokenSite``."""

    mechanism: Psal
    form: Form

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        geometry: TokenGeometry,
    ) -> Tensor:
        """Return the attention of q, k, v."""
        return attend_tokens(q, k, v, bias, geometry, self.mechanism, self.form)


@dataclass(frozen=True)
class Maps:
    """Exact attention in local windows; interface of ``models.sites.MapSite``."""

    mechanism: Psal
    form: Form

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale: float,
    ) -> Tensor:
        """Return the attention of q, k, v (B, C, H, W) within local windows.

        The last windows extend beyond the map: a channel that is 1 in every query, 0 in every key
        and very low in the keys beyond the map excludes those.
        """
        side = self.mechanism.local_window
        height = q.shape[2]
        width = q.shape[3]
        rows = -height % side
        columns = -width % side
        ones = torch.ones_like(q[:, :1])
        packed = torch.cat((q, ones, k), 1)
        beyond = torch.zeros_like(q[:, :1])
        border = (0, columns, 0, rows)
        padded = (
            F.pad(packed, border),
            F.pad(beyond, border, value=_PADDED / scale),
            F.pad(v, border),
        )
        packed_map = torch.cat(padded, 1)
        channels_last = packed_map.permute(0, 2, 3, 1)
        out = in_form(window_softmax, self.form)(
            channels_last.contiguous(),
            q.new_zeros(1, 1),
            heads=1,
            head_dim=q.shape[1] + 1,
            value_dim=v.shape[1],
            window_h=side,
            window_w=side,
            shift_h=0,
            shift_w=0,
            mask=0,
            bias=0,
            scale=scale,
        )
        out = out.permute(0, 3, 1, 2)
        return out[:, :, :height, :width]
