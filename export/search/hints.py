"""What may be attention although its scores are no matrix product of two tensors."""

from __future__ import annotations

import enum


class Hint(enum.Enum):
    """What the scores of a later softmax may be if they are no matrix product of two tensors.

    Each value is the reason that is reported for attention with such scores.
    """

    PRODUCTS = "two tensors multiplied element by element"
    SUMS = "its scores are sums of element-wise products, not a matrix product"
    CONSTANT_KEYS = "its keys do not depend on the input"
    CONSTANT_QUERIES = "its queries do not depend on the input"


def unserved(hint: Hint | None, *, constant: bool) -> str:
    """Return why weights that are multiplied with values are not supported attention, or "".

    A softmax of a linear layer, multiplied with values that depend on the input, may be linear
    attention, whose softmax normalizes features. It is not reported.

    Args:
        hint: Of the scores of the weights.
        constant: Whether the values do not depend on the input.
    """
    if hint is None or (hint is Hint.CONSTANT_KEYS and not constant):
        return ""
    return hint.value
