"""``NystraWindowCovariance`` in torch, a plain function and a custom op."""

from __future__ import annotations

import torch
from torch import Tensor

from ..cluster_torch import attend_clusters, center_keys
from ..operator_torch import register
from ..window_cluster.torch_op import ClusteredWindows
from ..windows_torch import empty_map
from .schema import SCHEMA


def window_covariance(qkv: Tensor, bias_table: Tensor | None = None, **attributes: float) -> Tensor:
    """Return attention (B, H, W, h e) to clusters of keys with their covariance with the values.

    It is differentiable except for the clusters. Arguments and errors as of ``window_softmax``.
    """
    windows = ClusteredWindows.of(SCHEMA, qkv, bias_table, attributes)
    blocks = windows.blocks
    keys = center_keys(windows.k, windows.members, windows.centers)
    elsewhere, own = windows.sum_seen(windows.sum_members(keys))
    count = own[..., windows.v.shape[-1]].unsqueeze(-1)
    # Where no member is left, sums are zero but for rounding, which a small weight would enlarge.
    seen = elsewhere + torch.where(count > 0, own, torch.zeros_like(own))
    own_q = blocks.cut(windows.q)
    out = attend_clusters(
        own_q,
        windows.centers.unsqueeze(-3),
        seen,
        windows.compute_own_logits(own_q),
        blocks.cut(windows.v),
        windows.v.unsqueeze(-3),
    )
    return windows.merge(out)


register(SCHEMA, window_covariance, empty_map(SCHEMA.name))
