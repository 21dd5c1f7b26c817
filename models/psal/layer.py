"""The patch-based stochastic attention layer, PSAL (Cherel et al., 2023), sections 3.2 to 3.5.

PatchMatch finds k keys for every query pixel; a softmax over their scores weighs the values.
The search itself has no gradient; the scores of what it found have (equations 6 to 8).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from ...core.errors import NystraError
from ...plugins.operators.patch_match.torch_op import patch_match
from .scores import pair_scores
from .values import aggregate_values, match_logits, mix_values

METRICS = ("l2", "dot", "cosine")
"""Similarities, at the place of their number in ``NystraPatchMatch``."""

RECONSTRUCTIONS = ("center", "aggregate", "votes")
"""How values are put together; see ``PsalOptions``."""

Search: TypeAlias = Callable[..., tuple[Tensor, Tensor]]
"""``NystraPatchMatch``: (query, key, query_mask, key_mask, start, **attributes) to index, score."""


@dataclass(frozen=True)
class PsalOptions:
    """What a PSAL layer does; the search has the ranges of ``NystraPatchMatch``.

    Attributes:
        neighbors: k, matches of a query.
        patch_size: Side of a patch, odd.
        iterations: Of the search.
        metric: ``l2`` (minus the sum of squared differences), ``dot`` or ``cosine``.
        temperature: What scores are divided by before the softmax.
        seed: Of the search.
        reconstruction: ``center`` takes the values at the matched centres (PSAL-k),
            ``aggregate`` adds the matches of spatial neighbours to one softmax (equation 10),
            ``votes`` averages the matched value patches that cover a pixel.
    """

    neighbors: int = 3
    patch_size: int = 7
    iterations: int = 5
    metric: str = "l2"
    temperature: float = 1.0
    seed: int = 0
    reconstruction: str = "center"

    def __post_init__(self) -> None:
        """Refuse values outside their range; the search checks its own attributes."""
        checks = (
            (self.metric in METRICS, "metric", ", ".join(METRICS)),
            (
                self.reconstruction in RECONSTRUCTIONS,
                "reconstruction",
                ", ".join(RECONSTRUCTIONS),
            ),
            (self.temperature > 0.0, "temperature", "a number above 0"),
        )
        for fine, name, expected in checks:
            if not fine:
                raise NystraError(f"{name} is {getattr(self, name)!r}; expected {expected}")


class Psal(nn.Module):
    """PSAL as a module: query (B, C, H, W), key (B, C, Hk, Wk), value (B, Cv, Hk, Wk).

    It has no parameters. Self-attention takes the same map three times.
    """

    def __init__(self, options: PsalOptions | None = None, search: Search = patch_match) -> None:
        """Keep the options and the search, which may be any that keeps to its contract."""
        super().__init__()
        self.options = options or PsalOptions()
        self.search = search

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_mask: Tensor | None = None,
        query_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the attention (B, Cv, H, W); arguments as for ``psal``."""
        return psal(query, key, value, self.options, key_mask, query_mask, search=self.search)


def psal(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    options: PsalOptions,
    key_mask: Tensor | None = None,
    query_mask: Tensor | None = None,
    *,
    search: Search = patch_match,
) -> Tensor:
    """Return patch-based stochastic attention, differentiable in query, key and value.

    Patches at the border repeat the border pixels, so every pixel is a query and a key.

    Args:
        query: (B, C, H, W).
        key: (B, C, Hk, Wk).
        value: (B, Cv, Hk, Wk).
        options: Of the layer.
        key_mask: Broadcastable to (B, 1, Hk, Wk): only keys above 0 are matched or, aggregated,
            read. None: all.
        query_mask: Broadcastable to (B, 1, H, W): only queries above 0 search; the output of the
            others is 0 (aggregated: what their neighbours give them). None: all.
        search: Computes the matches.

    Returns:
        (B, Cv, H, W); 0 where a query found nothing.

    Raises:
        NystraError: The options or the shapes do not fit the search.
    """
    index, score = matches(query, key, options, key_mask, query_mask, search=search)
    return reconstruct(index, score, value, options, key_mask)


def matches(
    query: Tensor,
    key: Tensor,
    options: PsalOptions,
    key_mask: Tensor | None = None,
    query_mask: Tensor | None = None,
    *,
    search: Search = patch_match,
) -> tuple[Tensor, Tensor]:
    """Return index (B, k, H, W) int32 and score (B, k, H, W) of the matches.

    The score carries gradients where query or key want them; arguments as for ``psal``.
    """
    unused = query.new_ones(1, 1, 1, 1)
    start = torch.full((1, 1, 1, 1), -1, dtype=torch.int32, device=query.device)
    with torch.no_grad():
        index, score = search(
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
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad):
        score = pair_scores(query, key, index, options.patch_size, options.metric)
    return index, score


def reconstruct(
    index: Tensor,
    score: Tensor,
    value: Tensor,
    options: PsalOptions,
    key_mask: Tensor | None = None,
) -> Tensor:
    """Return the output (B, Cv, H, W) for given matches; arguments as for ``psal``."""
    logits = match_logits(index, score, options.temperature)
    if options.reconstruction == "center":
        return mix_values(logits, index, value)
    votes = options.reconstruction == "votes"
    return aggregate_values(logits, index, value, options.patch_size, key_mask, votes=votes)
