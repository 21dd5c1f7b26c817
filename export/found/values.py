"""The values of a search: tensors with their places and their relation to scores."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from .places import agreed

Number = Tensor | float

_NO_NUMBERS = torch.zeros(0, dtype=torch.int64)


class Hint(enum.Enum):
    """What a tensor that is not a product of two others may be to a softmax behind it.

    Each value is the reason that is reported for attention with such scores.
    """

    PRODUCTS = "two tensors multiplied element by element"
    SUMS = "its scores are sums of element-wise products, not a matrix product"
    CONSTANT_KEYS = "its keys do not depend on the input"
    CONSTANT_QUERIES = "its queries do not depend on the input"


@dataclass
class Score:
    """A tensor as a function of a product of queries and keys: alpha * product[number] + beta.

    Attributes:
        product: The node of the product.
        number: Of each element, into the product's elements.
        alpha: Factor.
        beta: What is added: position bias and mask, however they are written.
        by_data: Something that depends on the input is added.
        softmax: The softmax that it is behind, or None.
        reason: Why the attention cannot be replaced, or "".
        hint: What the softmax is of, where that is not a product: it stands for the product then.
    """

    product: fx.Node
    number: Tensor
    alpha: Number = 1.0
    beta: Number = 0.0
    by_data: bool = False
    softmax: fx.Node | None = None
    reason: str = ""
    hint: Hint | None = None

    def but(self, reason: str) -> Score:
        """Return the score with a reason, unless it has one."""
        return self if self.reason else replace(self, reason=reason)


@dataclass
class Value:
    """A value of the graph.

    Attributes:
        data: The tensor; once nothing runs on it any more, its shape on the meta device.
        place: Of each element; None if it does not depend on the input.
        score: What it is to a product.
        hint: What it may be to a softmax, where it has no score.
    """

    data: Tensor
    place: Tensor | None = None
    score: Score | None = None
    hint: Hint | None = None

    def without_data(self) -> Value:
        """Return it with the shape of its data only."""
        shape = torch.empty(self.data.shape, dtype=self.data.dtype, device="meta")
        return Value(shape, self.place)

    def forget(self, *, places: bool) -> None:
        """Keep of data that depend on the input the shape only, of a score what it is of.

        Args:
            places: These go too.
        """
        if self.score is not None:
            self.score = replace(self.score, number=_NO_NUMBERS, alpha=1.0, beta=0.0)
        if self.place is not None and self.data.device.type != "meta":
            self.data = torch.empty(self.data.shape, dtype=self.data.dtype, device="meta")
        if places and self.place is not None:
            self.place = _NO_NUMBERS


@dataclass
class Core:
    """One attention: out = softmax(alpha q k^T + beta) v, in groups g (windows times heads).

    Attributes:
        q: Node of the queries, (g, N, d), or (g, d, N) where ``swapped``.
        k: Of the keys, (g, d, Nk), or (g, Nk, d) where ``swapped`` or ``fused``.
        v: Of the values, (g, Nk, e), or (g, e, Nk) where ``v_left``.
        out: What comes of it.
        product: The product of queries and keys.
        softmax: The softmax.
        q_place: (g, N, d).
        k_place: (g, Nk, d).
        v_place: (g, Nk, e).
        alpha: Factor of the scores, broadcastable to (g, N, Nk).
        beta: What is added to them; behind `without_pairs` whether something is.
        by_data: Some of that depends on the input.
        swapped: The product was k q^T.
        v_left: The result is v^T p^T.
        fused: It is one operator with four axes.
        blank: Of each key, (g, Nk), that it and its value are zero throughout.
        reason: Why it cannot be replaced, or "".
    """

    q: fx.Node
    k: fx.Node
    v: fx.Node
    out: fx.Node
    product: fx.Node
    softmax: fx.Node
    q_place: Tensor
    k_place: Tensor
    v_place: Tensor
    alpha: Number
    beta: Number
    by_data: bool
    blank: Tensor
    swapped: bool = False
    v_left: bool = False
    fused: bool = False
    reason: str = ""

    def without_pairs(self) -> Core:
        """Return it with what is needed behind its layout: whether something is added, factors."""
        alpha, beta = self.alpha, self.beta
        if isinstance(beta, Tensor):
            beta = (beta != 0).any().double()
        if isinstance(alpha, Tensor):
            alpha = alpha[:, :1, :1].clone()
        return replace(self, alpha=alpha, beta=beta)

    def token_places(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return the place of each token, and where it is one."""
        place, exact = agreed(places, 2)
        return place[..., 0], exact[..., 0]


@dataclass(frozen=True)
class Passed:
    """Attention that cannot be replaced.

    Attributes:
        softmax: Its node.
        reason: Why.
    """

    softmax: fx.Node
    reason: str


def as_double(number: Any) -> Tensor:
    """Return a number or tensor as float64."""
    return torch.as_tensor(number, dtype=torch.float64)
