"""Products of two tensors: the places of their results, and the attention that two of them form."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, fx

from ..search.places import MIXED, NONE, agreed, broadcasts
from ..search.tokens import as_number
from .values import Core, Score, Value

PRODUCTS = ("bmm", "mm", "addmm", "baddbmm", "matmul", "mv", "dot", "linear")
FUSED = (
    "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_attention_math",
    "_scaled_dot_product_attention_math_for_mps",
)
"""Fused attention operators: (q, k, v, ...)."""

_BATCHED = (
    torch.ops.aten.bmm.default,
    torch.ops.aten.mm.default,
    torch.ops.aten.baddbmm.default,
)


def three(tensor: Tensor) -> Tensor:
    """Return a matrix (rows, columns) as (1, rows, columns), and three axes unchanged."""
    return tensor if tensor.dim() == 3 else tensor[None]


def linear_place(name: str, a: Value, b: Value, out: Tensor) -> Tensor:
    """Return the places of the result of a linear layer, in which one factor is constant."""
    left = a.place is not None
    place = _place(a if left else b)
    dim = a.data.dim() - 1 if left else max(b.data.dim() - 2, 0)
    result = agreed(place, dim)[0]
    if result.dim() == out.dim() and broadcasts(result.shape, out.shape):
        return result.expand(out.shape)
    squeezed = result.squeeze(dim)
    return squeezed if squeezed.shape == out.shape else torch.full(out.shape, MIXED)


def product_place(a: Value, b: Value, out: Tensor) -> Tensor:
    """Return the places of a product of two tensors that depend on the input: those of its rows."""
    sides: list[tuple[Tensor, Tensor]] = []
    for value, dim in ((a, a.data.dim() - 1), (b, max(b.data.dim() - 2, 0))):
        place, exact = agreed(_place(value), dim)
        if place.dim() != out.dim():
            place = exact = torch.full(out.shape, MIXED)
        if not sides and bool(((place >= 0) & exact).all()) and broadcasts(place.shape, out.shape):
            return place.expand(out.shape)
        sides.append((place.expand(out.shape), exact.expand(out.shape)))
    (left, left_exact), (right, _) = sides
    use = (left >= 0) & (left_exact != 0)
    return torch.where(use, left, torch.where(right >= 0, right, left))


def product_score(node: fx.Node, out: Tensor, added: Value | None, kwargs: Any) -> Score:
    """Return the score of a product: the product times alpha plus an added tensor times beta."""
    score = Score(node, torch.empty(out.shape, dtype=torch.int64, device="meta"))
    if added is not None:
        score.alpha = kwargs.get("alpha", 1.0)
        score.beta = as_number(added.data) * kwargs.get("beta", 1.0)
        score.by_data = added.place is not None
    return score


def attention_place(core: Core, out: Tensor) -> Tensor | None:
    """Return the places of the result of an attention, or None if they are not known.

    They are the places of its queries, or of its values if its tokens are channels.
    """
    rows, exact = agreed(core.q_place, 2)
    if bool(exact.all()):
        if core.reason:
            return None
        turned = rows.transpose(-2, -1) if core.v_left else rows
        shape = out.shape if out.dim() == 3 else (1, *out.shape)
        return turned.expand(shape).reshape(out.shape)
    place = agreed(core.v_place, 1)[0]
    place = place.transpose(-2, -1) if core.v_left else place
    shape = out.shape if out.dim() == 3 else (1, *out.shape)
    return place.expand(shape).reshape(out.shape) if broadcasts(place.shape, shape) else None


def find_core(
    node: fx.Node,
    weights: Value,
    others: tuple[Value, Value],
    factors: tuple[Value, Value],
    blanks: tuple[Tensor, Tensor],
) -> Core | str:
    """Return the attention of a node that multiplies weights and values, or why it is none.

    Args:
        node: A product.
        weights: The result of a softmax.
        others: Factors of the product: weights and values in either order.
        factors: Factors of the product of the scores.
        blanks: For each of these factors, which elements are zero.
    """
    score = weights.score
    if score is None or score.softmax is None or score.product.target not in _BATCHED:
        return "its scores are not a matrix product"
    v_left = others[1] is weights and others[0] is not weights
    value, value_node = (others[0], node.args[-2]) if v_left else (others[1], node.args[-1])
    if score.number.device.type != "meta" and int(score.number.min()) < 0:
        return score.reason or "scores of several products are concatenated"
    if not isinstance(value_node, fx.Node):
        return "its values are not a tensor"
    left, right = factors
    left_data, right_data = three(left.data), three(right.data)
    groups, rows, columns = left_data.shape[0], left_data.shape[1], right_data.shape[2]
    swapped, straight = _numbering(score, (groups, rows, columns), v_left=v_left)
    left_place, right_place = three(_place(left)), three(_place(right))
    blank = three(blanks[1]).all(1)
    if swapped:
        left_place, right_place = right_place.transpose(1, 2), left_place.transpose(1, 2)
        blank = three(blanks[0]).all(2)
    value_data, v_place = three(value.data), three(_place(value))
    if v_left:
        value_data, v_place = value_data.transpose(1, 2), v_place.transpose(1, 2)
    reason = score.reason
    if not straight:
        reason = reason or "its weights are in another order than its scores"
        blank = torch.zeros(value_data.shape[:2], dtype=torch.bool)
    elif blank.shape == value_data.shape[:2]:
        blank = blank & (value_data == 0).all(2)
    q, k = score.product.args[-2:]
    q, k = (k, q) if swapped else (q, k)
    if not isinstance(q, fx.Node) or not isinstance(k, fx.Node):
        return "its queries or keys are not tensors"
    return Core(
        q=q,
        k=k,
        v=value_node,
        out=node,
        product=score.product,
        softmax=score.softmax,
        q_place=left_place,
        k_place=right_place.transpose(1, 2),
        v_place=v_place,
        alpha=_as_groups(score.alpha, score.number, turned=v_left),
        beta=_as_groups(score.beta, score.number, turned=v_left),
        by_data=score.by_data,
        blank=blank,
        swapped=swapped,
        v_left=v_left,
        reason=reason,
    )


def _numbering(score: Score, sizes: tuple[int, int, int], *, v_left: bool) -> tuple[bool, bool]:
    """Return how weights are ordered, compared with the elements of the product of the scores.

    Args:
        score: The weights; their elements may be in another order than those of the product.
        sizes: Groups, rows and columns of the product.
        v_left: Whether the weights are transposed.

    Returns:
        Whether its columns are the queries, and whether groups, queries and keys are in order.
    """
    if score.number.device.type == "meta" and not v_left and three(score.number).shape == sizes:
        return False, True
    number = three(score.numbers)
    number = number.transpose(1, 2) if v_left else number
    scores = torch.arange(math.prod(sizes)).reshape(sizes)
    if number.equal(scores):
        return False, True
    columns = sizes[2]
    if columns > 1 and number.equal(scores.transpose(1, 2)):
        return True, True
    column = number % columns
    return columns > 1 and bool((column[:, :, :1] == column).all()), False


def _as_groups(number: Tensor | float, like: Tensor, *, turned: bool) -> Tensor | float:
    """Return a factor or a bias as (g, N, Nk), or as a float if it is a single number."""
    if not isinstance(number, Tensor):
        return number
    if number.dim() == 0 or number.numel() == 1:
        return float(number)
    spread = three(number.expand(like.shape))
    return spread.transpose(1, 2) if turned else spread


def fused_core(node: fx.Node, args: Any, kwargs: Any) -> Core | str:
    """Return the attention that a fused operator computes, or why it is not supported."""
    q, k, v = args[:3]
    if any(value.place is None for value in (q, k, v)):
        return "queries, keys or values do not depend on the input"
    if any(value.data.dim() < 3 for value in (q, k, v)):
        return "queries, keys or values have no groups"
    if q.data.shape[:-2] != k.data.shape[:-2]:
        return "several heads share their keys"
    mask, causal = _mask_of(args, kwargs)
    shape = (*q.data.shape[:-1], k.data.shape[-2])
    beta: Tensor | float = 0.0
    if mask is not None:
        beta = _biases(mask.data).expand(shape).flatten(0, -3)
    elif causal:
        upper = torch.ones(shape[-2:]).tril().logical_not()
        beta = torch.zeros(shape).masked_fill(upper, -math.inf)
        beta = beta.flatten(0, -3)
    blank = (k.data == 0).all(-1) & (v.data == 0).all(-1)
    nodes: Any = node.args[:3]
    return Core(
        q=nodes[0],
        k=nodes[1],
        v=nodes[2],
        out=node,
        product=node,
        softmax=node,
        q_place=q.place.flatten(0, -3),
        k_place=k.place.flatten(0, -3),
        v_place=v.place.flatten(0, -3),
        alpha=kwargs.get("scale") or q.data.shape[-1] ** -0.5,
        beta=beta,
        by_data=mask is not None and mask.place is not None,
        blank=blank.flatten(0, -2),
        fused=True,
        reason="its attention is causal" if causal else "",
    )


def _mask_of(args: Any, kwargs: Any) -> tuple[Value | None, bool]:
    """Return the mask of a fused operator, or None, and whether the operator is causal."""
    mask = kwargs.get("attn_mask", kwargs.get("attn_bias"))
    if mask is None and len(args) > 3 and isinstance(args[3], Value):
        mask = args[3]
    causal = kwargs.get("is_causal", any(argument is True for argument in args[3:]))
    return mask, bool(causal)


def _biases(mask: Tensor) -> Tensor:
    """Return a mask as biases that are added to the scores."""
    if mask.dtype != torch.bool:
        return as_number(mask)
    return torch.zeros(mask.shape).masked_fill(~mask, -math.inf)


def fused_place(q: Value, out: Tensor) -> Tensor:
    """Return the places of a fused attention: those of its queries."""
    if q.place is None:
        return torch.full(out.shape, NONE)
    place = agreed(q.place, q.data.dim() - 1)[0]
    return place.expand(out.shape) if broadcasts(place.shape, out.shape) else place


def _place(value: Value) -> Tensor:
    return torch.full(value.data.shape, NONE) if value.place is None else value.place
