"""The patch-based stochastic attention layer, PSAL (Cherel et al., 2023), sections 3.2 to 3.5.

PatchMatch finds k keys for every query pixel; a softmax over their scores weighs the values.
The search itself has no gradient; the scores of what it found have (equations 6 to 8).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nystra.core.errors import NystraError
from nystra.models.psal.search import PsalOptions, Search
from nystra.models.psal.search import matches as search_matches
from nystra.models.psal.values import match_logits
from nystra.plugins.operators.patch_match.torch_op import patch_match
from studies.psal.scores import pair_scores
from studies.psal.values import aggregate_values, mix_values, vote_values

RECONSTRUCTIONS = ("center", "aggregate", "votes")
"""How values are put together; see ``LayerOptions``."""


@dataclass(frozen=True)
class LayerOptions(PsalOptions):
    """The options of a PSAL layer.

    Attributes:
        reconstruction: ``center`` takes the values at the matched centers (PSAL-k),
            ``aggregate`` adds the matches of spatial neighbors to one softmax (equation 10),
            ``votes`` averages the matched value patches that cover a pixel.
    """

    reconstruction: str = "center"

    def __post_init__(self) -> None:
        """Refuse values outside their range; the search checks its own attributes."""
        super().__post_init__()
        if self.reconstruction not in RECONSTRUCTIONS:
            expected = ", ".join(RECONSTRUCTIONS)
            raise NystraError(f"reconstruction is {self.reconstruction!r}; expected {expected}")


class Psal(nn.Module):
    """PSAL as a module: query (B, C, H, W), key (B, C, Hk, Wk), value (B, Cv, Hk, Wk).

    It has no parameters. Self-attention takes the same map three times.
    """

    def __init__(self, options: LayerOptions | None = None, search: Search = patch_match) -> None:
        """Store the options and the search, any function with the same contract."""
        super().__init__()
        self.options = options or LayerOptions()
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
    options: LayerOptions,
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
            others is 0 (aggregated: what their neighbors give them). None: all.
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
    index, score = search_matches(query, key, options, key_mask, query_mask, search=search)
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad):
        score = pair_scores(query, key, index, options.patch_size, options.metric)
    return index, score


def reconstruct(
    index: Tensor,
    score: Tensor,
    value: Tensor,
    options: LayerOptions,
    key_mask: Tensor | None = None,
) -> Tensor:
    """Return the output (B, Cv, H, W) for given matches; arguments as for ``psal``."""
    logits = match_logits(index, score, options.temperature)
    if options.reconstruction == "center":
        return mix_values(logits, index, value)
    add_up = vote_values if options.reconstruction == "votes" else aggregate_values
    return add_up(logits, index, value, options.patch_size, key_mask)
