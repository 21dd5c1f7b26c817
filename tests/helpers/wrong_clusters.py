"""Attention with clustered keys with one fault each: negative controls of tolerances."""

from __future__ import annotations

from typing import Any

import torch

from nystra.plugins.operators import cluster_torch
from nystra.plugins.operators.window_cluster import torch_op

_coarse_bias, regions_at = torch_op._coarse_bias, torch_op.regions_at


def _without_cluster(k: Any, seeds: Any, rounds: int) -> Any:
    members, centers = cluster_torch.key_clusters(k, seeds, rounds)
    members = members.clone()
    members[..., -1] = 0
    return members, centers


def _other_block(*arguments: Any) -> Any:
    return _coarse_bias(*arguments).roll(1, -1)


def _nowhere(mask: Any, *arguments: Any) -> Any:
    return torch.zeros_like(regions_at(mask, *arguments))


WRONG = {
    "a cluster is dropped": ("key_clusters", _without_cluster),
    "the bias is off by a block": ("_coarse_bias", _other_block),
    "regions see each other": ("regions_at", _nowhere),
}
