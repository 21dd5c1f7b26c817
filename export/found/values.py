"""The values of a search: tensors with their places and their relation to scores."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx

from ..search.hints import Hint
from ..search.tokens import Number, Tokens

_NO_NUMBERS = torch.zeros(0, dtype=torch.int64)


@dataclass
class Score:
    """A tensor as a function of a product of queries and keys: alpha * product[number] + beta.

    Attributes:
        product: The node of the product.
        number: For each element, the number of its element of the product; only the shape, on the
            meta device, while the elements have the product's order.
        alpha: Factor, a number, or a tensor of float32 or float64.
        beta: Added term, a number, or a tensor of float32 or float64: position bias and mask.
        by_data: Whether the added term depends on the input.
        softmax: Node of the softmax that was applied, or None.
        reason: Why the attention cannot be replaced, or "".
        hint: What the scores are if they are no product; ``product`` is the softmax then.
    """

    product: fx.Node
    number: Tensor
    alpha: Number = 1.0
    beta: Number = 0.0
    by_data: bool = False
    softmax: fx.Node | None = None
    reason: str = ""
    hint: Hint | None = None

    @property
    def numbers(self) -> Tensor:
        """The number of each element, also while the elements have the product's order."""
        if self.number.device.type != "meta":
            return self.number
        return torch.arange(self.number.numel()).reshape(self.number.shape)

    def but(self, reason: str) -> Score:
        """Return the score with a reason, unless it has one."""
        return self if self.reason else replace(self, reason=reason)


@dataclass
class Value:
    """A value of the graph.

    Attributes:
        data: The tensor; after its last use, a tensor of the same shape on the meta device.
        place: Place of each element; None if the value does not depend on the input.
        score: The value as a function of a product, or None.
        hint: What the value may be to a later softmax, if it has no score.
    """

    data: Tensor
    place: Tensor | None = None
    score: Score | None = None
    hint: Hint | None = None

    def without_data(self) -> Value:
        """Return the value with only the shape of its data, and without score and hint."""
        shape = torch.empty(self.data.shape, dtype=self.data.dtype, device="meta")
        return Value(shape, self.place)

    def forget(self, *, places: bool) -> None:
        """Free data that depend on the input, except the shape, and the numbers of a score.

        Args:
            places: Whether places are freed too.
        """
        if self.score is not None:
            self.score = replace(self.score, number=_NO_NUMBERS, alpha=1.0, beta=0.0)
        if self.place is not None and self.data.device.type != "meta":
            self.data = torch.empty(self.data.shape, dtype=self.data.dtype, device="meta")
        if places and self.place is not None:
            self.place = _NO_NUMBERS


@dataclass(kw_only=True)
class Core(Tokens):
    """One attention, in a graph of PyTorch's operators.

    Attributes:
        q: Node of the queries, (g, N, d), or (g, d, N) if ``swapped``.
        k: Node of the keys, (g, d, Nk), or (g, Nk, d) if ``swapped`` or ``fused``.
        v: Node of the values, (g, Nk, e), or (g, e, Nk) if ``v_left``.
        out: Node of the result.
        product: Node of the product of queries and keys.
        softmax: Node of the softmax.
        swapped: Whether the product is k q^T.
        v_left: Whether the result is v^T p^T.
        fused: Whether one operator computes the attention, with leading axes instead of g.
        blank: Whether a key and its value are zero in all channels, (g, Nk).
    """

    q: fx.Node
    k: fx.Node
    v: fx.Node
    out: fx.Node
    product: fx.Node
    softmax: fx.Node
    blank: Tensor
    swapped: bool = False
    v_left: bool = False
    fused: bool = False


@dataclass(frozen=True)
class Passed:
    """Attention that cannot be replaced.

    Attributes:
        softmax: Node of its softmax.
        reason: Why it cannot be replaced.
    """

    softmax: fx.Node
    reason: str
