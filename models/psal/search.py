"""The search of patch-based stochastic attention, PSAL (Cherel et al., 2023), section 3.2.

PatchMatch finds k keys for every query pixel; a softmax over their scores weighs the values. No
gradient flows through the search: training through PSAL is in studies/psal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.errors import NystraError
from ...plugins.operators.patch_match.torch_op import patch_match

METRICS = ("l2", "dot", "cosine")
"""Similarities, indexed by their number in ``NystraPatchMatch``."""

Search: TypeAlias = Callable[..., tuple[Tensor, Tensor]]
"""``NystraPatchMatch``: (query, key, query_mask, key_mask, start, **attributes) to index, score."""


@dataclass(frozen=True)
class PsalOptions:
    """The options of PSAL; the search has the ranges of ``NystraPatchMatch``.

    Attributes:
        neighbors: k, matches per query.
        patch_size: Side of a patch, odd.
        iterations: Iterations of the search.
        metric: ``l2`` (minus the sum of squared differences), ``dot`` or ``cosine``.
        temperature: Divisor of the scores before the softmax.
        seed: Seed of the search.
    """

    neighbors: int = 3
    patch_size: int = 7
    iterations: int = 5
    metric: str = "l2"
    temperature: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        checks = (
            (self.metric in METRICS, "metric", ", ".join(METRICS)),
            (self.temperature > 0.0, "temperature", "a number above 0"),
        )
        for fine, name, expected in checks:
            if not fine:
                raise NystraError(f"{name} is {getattr(self, name)!r}; expected {expected}")


def matches(
    query: Tensor,
    key: Tensor,
    options: PsalOptions,
    key_mask: Tensor | None = None,
    query_mask: Tensor | None = None,
    *,
    search: Search = patch_match,
) -> tuple[Tensor, Tensor]:
    """Return the matches of every query pixel, which carry no gradient.

    Patches at the border repeat the border pixels, so every pixel is a query and a key.

    Args:
        query: (B, C, H, W).
        key: (B, C, Hk, Wk).
        options: Options of the search.
        key_mask: Broadcastable to (B, 1, Hk, Wk): only keys above 0 are matched. None: all.
        query_mask: Broadcastable to (B, 1, H, W): only queries above 0 search. None: all.
        search: Computes the matches.

    Returns:
        index (B, k, H, W) int32, y * Wk + x of the matched center, negative for an empty entry,
        and score (B, k, H, W).

    Raises:
        NystraError: The options or the shapes do not fit the search.
    """
    unused = query.new_ones(1, 1, 1, 1)
    start = torch.full((1, 1, 1, 1), -1, dtype=torch.int32, device=query.device)
    with torch.no_grad():
        return search(
            query.detach(),
            key.detach(),
            unused if query_mask is None else query_mask.to(query.dtype),
            unused if key_mask is None else key_mask.to(query.dtype),
            start,
            patch_size=options.patch_size,
            iterations=options.iterations,
            neighbors=options.neighbors,
            metric=METRICS.index(options.metric),
            seed=options.seed,
        )


def patch_squares(image: Tensor, patch_size: int) -> Tensor:
    """Return the sum of squares (B, 1, H, W) of the patch around each pixel, borders clamped."""
    radius = patch_size // 2
    squares = image.square().sum(1, keepdim=True)
    if radius == 0:
        return squares
    squares = F.pad(squares, (radius,) * 4, mode="replicate")
    return F.avg_pool2d(squares, patch_size, stride=1) * float(patch_size**2)
