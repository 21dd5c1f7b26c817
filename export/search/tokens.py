"""The tokens of one attention: where they are, and what is added to and multiplied with scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from .places import agreed, unshared

Number = Tensor | float


@dataclass(kw_only=True)
class Tokens:
    """The tokens of out = softmax(alpha q k^T + beta) v, in groups g (windows times heads).

    Attributes:
        q_place: Places of the queries, (g, N, d).
        k_place: Places of the keys, (g, Nk, d).
        v_place: Places of the values, (g, Nk, e).
        alpha: Factor of the scores, broadcastable to (g, N, Nk).
        beta: Term added to the scores; after `without_pairs` only whether there is one.
        by_data: Whether the added term depends on the input.
        reason: Why the attention cannot be replaced, or "".
    """

    q_place: Tensor
    k_place: Tensor
    v_place: Tensor
    alpha: Number
    beta: Number
    by_data: bool
    reason: str = ""

    def without_pairs(self) -> Self:
        """Return the attention without values per pair: with one factor per group."""
        alpha, beta = self.alpha, self.beta
        if isinstance(beta, Tensor):
            beta = (unshared(beta) != 0).any().double()
        if isinstance(alpha, Tensor):
            alpha = alpha[:, :1, :1].clone()
        return replace(self, alpha=alpha, beta=beta)

    def map_codes(self) -> Tensor:
        """Return the sorted places of the map that the queries cover."""
        codes = self.q_place[..., 0].flatten()
        covered: Tensor = codes[codes >= 0].unique()
        return covered

    def token_places(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return the place of each token and whether all its channels have it, (g, N) both."""
        place, exact = agreed(places, 2)
        return place[..., 0], exact[..., 0]


def as_number(number: Any) -> Tensor:
    """Return a number as float64, and a tensor with axes as float32 unless it is float64.

    Values per pair of tokens take most of the memory of a search.
    """
    if isinstance(number, Tensor) and number.dim():
        return number if number.dtype == torch.float64 else number.float()
    return torch.as_tensor(number, dtype=torch.float64)


def lighter(value: Tensor) -> Number:
    """Return a tensor without axes as a number, which needs no memory per pair of tokens."""
    return value if value.dim() else float(value)
