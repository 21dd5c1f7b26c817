"""The memory of exact attention that grows with the square of the image."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...core.ports.examples import example_arrays
from ...models.facts import Facts
from ...models.sites import MapSite, PatchSite
from .full.parameters import Full
from .mechanism import Mechanism
from .operations import without_values
from .site import find_sites, neutral, swap

BYTES_PER_SCORE = 20
"""Peak bytes per score of query and key in onnxruntime: measured 19 on CSNLN."""

BYTES_PER_FUSED_SCORE = 15
"""The same with fused scores along diagonals: from the inpainting network's peaks at 512 and 768
pixels per side."""


def quadratic_bytes(network: nn.Module, facts: Facts, resolved: Mapping[str, Mechanism]) -> float:
    """Return b: the largest attention of an image of n pixels takes about b n^2 bytes.

    Only sites without a window that stay ``full`` count; 0 if there are none.
    """
    full = [site.module for site in find_sites(network) if isinstance(resolved[site.path], Full)]
    if not any(isinstance(module, (PatchSite, MapSite)) for module in full):
        return 0.0
    copied = swap(network, neutral(network))
    size = facts.test_size()
    counts = [0.0]
    for site in find_sites(copied):
        module = site.module
        if isinstance(module, (PatchSite, MapSite)) and isinstance(resolved[site.path], Full):
            inner: Any = module.implementation
            counted: Any = _counting(inner, module, counts)
            module.implementation = counted
    arrays = example_arrays(facts.inputs, size).values()
    with torch.no_grad():
        without_values(lambda: copied(*map(torch.from_numpy, arrays)))
    return max(counts) / math.prod(size.values()) ** 2


def _counting(
    inner: Callable[..., Tensor], module: PatchSite | MapSite, counts: list[float]
) -> Callable[..., Tensor]:
    shrink, each = 1, BYTES_PER_SCORE
    if isinstance(module, PatchSite):
        shrink = module.geometry.shrink
        each = BYTES_PER_FUSED_SCORE if module.geometry.fuse else BYTES_PER_SCORE

    def call(query: Tensor, key: Tensor, *others: Any) -> Tensor:
        queries, keys = (tensor.shape[2] * tensor.shape[3] / shrink**2 for tensor in (query, key))
        counts.append(each * queries * keys)
        return inner(query, key, *others)

    return call
