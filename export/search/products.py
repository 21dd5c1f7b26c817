"""Products of two tensors: the places of their results, and the attention that two of them form."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir
import torch
from torch import Tensor

from ...core.ports.port import Shape
from .movement import number_elements, read_attribute, read_integer
from .places import NONE, find_agreed, unshare
from .values import Attention, Matrices, Number, Product, Score, Value, number_in_order


def read_product(node: ir.Node, shapes: Sequence[Shape], like: int | None = None) -> Product | None:
    """Return the product of matrices that a node computes, or None if it is of another kind.

    Args:
        node: The node.
        shapes: Shapes of its inputs.
        like: Number of the factor whose order of axes a sum of products keeps; None: its result.
    """
    return PRODUCTS[node.op_type](node, shapes, like)


def _matmul(node: ir.Node, shapes: Sequence[Shape], like: int | None) -> Product | None:
    left, right = shapes[:2]
    if len(left) < 2 or len(right) < 2:
        return None
    transposed = [bool(read_integer(node, name)) for name in ("transA", "transB")]
    transposed_batch = [read_integer(node, name) for name in ("transBatchA", "transBatchB")]
    if any(transposed_batch):
        return None
    return Product(
        node,
        _input(node, 0),
        _input(node, 1),
        Matrices.last(len(left), transposed=transposed[0]),
        Matrices.last(len(right), transposed=transposed[1]),
        Matrices.last(max(len(left), len(right))),
        float(read_attribute(node, "alpha", 1.0)),  # type: ignore[arg-type]
    )


def _einsum(node: ir.Node, shapes: Sequence[Shape], like: int | None) -> Product | None:
    """Return a sum of products of two tensors as a product of matrices.

    Axes of both factors and of the result are those of the stack.
    """
    equation = str(read_attribute(node, "equation")).replace(" ", "")
    terms, arrow, out = equation.partition("->")
    left, comma, right = terms.partition(",")
    if not arrow or not comma:
        return None
    for term in (left, right, out):
        if not term.isalpha() or len(set(term)) < len(term):
            return None
    guide = out if like is None else (left, right)[like] + out
    order_of_letters = (guide + left + right).index
    letters = sorted({*left, *right}, key=order_of_letters)
    both = [a for a in letters if a in left and a in right]
    stack = [a for a in both if a in out]
    summed = [a for a in both if a not in out]
    rows = [a for a in letters if a in left and a not in both]
    columns = [a for a in letters if a in right and a not in both]
    if sorted(out) != sorted(stack + rows + columns) or not summed:
        return None

    def read(term: str, first: list[str], second: list[str]) -> Matrices:
        letters_of_term = (*stack, *first, *second)
        order = tuple(term.index(letter) for letter in letters_of_term)
        return Matrices(order, len(stack), len(first))

    return Product(
        node,
        _input(node, 0),
        _input(node, 1),
        read(left, rows, summed),
        read(right, summed, columns),
        read(out, rows, columns),
    )


PRODUCTS = {
    "MatMul": _matmul,
    "FusedMatMul": _matmul,
    "Gemm": _matmul,
    "Einsum": _einsum,
}
"""Operators that multiply two tensors."""


def _input(node: ir.Node, at: int) -> ir.Value:
    value = node.inputs[at]
    if value is None:
        raise ValueError(f"{node.op_type} without its input {at}")
    return value


def place_of(value: Value) -> Tensor:
    """Return the places of a value; `NONE` for those of a constant."""
    if value.place is None:
        return torch.tensor(NONE).expand(value.shape)
    return value.place


def product_place(
    product: Product,
    a: Value,
    b: Value,
    out: Shape,
) -> Tensor:
    """Return the places of a product: those of its rows, or of its columns if these have none."""
    groups = product.out_as.sizes(out)[0]
    sizes = product.out_as.sizes(out)
    stack = tuple(map(math.prod, sizes))
    left_stack = product.left_as.of(place_of(a), groups)
    left, exact = find_agreed(left_stack, 2)
    use_left = (left >= 0) & exact
    if b.place is None or (a.place is not None and bool(use_left.all())):
        return product.out_as.back(left.expand(stack), out)
    right_stack = product.right_as.of(place_of(b), groups)
    right = find_agreed(right_stack, 1)[0]
    if a.place is None:
        return product.out_as.back(right.expand(stack), out)
    otherwise = torch.where(right >= 0, right, left)
    chosen = torch.where(use_left, left, otherwise)
    return product.out_as.back(chosen.expand(stack), out)


def attention_place(core: Attention, out: Shape) -> Tensor | None:
    """Return the places of the result of an attention, or None if they are not known.

    They are the places of its queries, or of its values if its tokens are channels.
    """
    rows, exact = find_agreed(core.q_place, 2)
    groups, tokens = rows.shape[:2]
    width = core.v_place.shape[2]
    if bool(exact.all()):
        if core.reason:
            return None
        every_row = rows.expand(groups, tokens, width)
        return core.out_as.back(every_row, out)
    place = find_agreed(core.v_place, 1)[0]
    every_place = place.expand(groups, tokens, width)
    return core.out_as.back(every_place, out)


def find_core(
    node: ir.Node,
    values: Sequence[Value],
    at: int,
    sources: tuple[Value, Value],
    scores: Shape,
) -> Attention | str:
    """Return the attention of a node that multiplies weights and values, or why it is none.

    Args:
        node: A product.
        values: Its factors.
        at: Number of the factor that is the weights.
        sources: Factors of the product of the scores.
        scores: Shape of that product.
    """
    score = values[at].score
    shapes = [value.shape for value in values]
    last = read_product(node, shapes, at)
    if score is None or score.product is None or score.softmax is None or last is None:
        return "its scores are not a matrix product"
    if at == 0:
        w_as = last.left_as
        v_as = last.right_as
        out_as = last.out_as
        v = last.right
    else:
        w_as = last.right_as.transposed
        v_as = last.left_as.transposed
        out_as = last.out_as.transposed
        v = last.left
    out_shape = tuple(_full_shape(node, shapes))
    v_groups = out_as.sizes(out_shape)[0]
    first = score.product
    numbered = score.number.device.type != "meta"
    if numbered and int(score.number.min()) < 0:
        return score.reason or "scores of several products are concatenated"
    groups = first.out_as.sizes(scores)[0]
    if math.prod(groups) != math.prod(v_groups):
        return score.reason or "its weights are in another order than its scores"
    swapped, straight = _number_scores(score, w_as, v_groups, first, scores)
    reason = score.reason
    if not reason and not straight:
        reason = "its weights are in another order than its scores"
    if not reason and not _is_along_keys(score, w_as, v_groups):
        reason = "its softmax is not along its keys"
    q = (first.left, first.left_as)
    k = (first.right, first.right_as.transposed)
    left, right = sources
    if swapped:
        q, k, left, right = k, q, right, left
    alpha = _in_groups(score.alpha, score.number, w_as.of, v_groups)
    return Attention(
        q=q[0],
        q_as=q[1],
        k=k[0],
        k_as=k[1],
        v=v,
        v_as=v_as,
        out=node.outputs[0],
        out_as=out_as,
        softmax=score.softmax,
        groups=groups,
        v_groups=v_groups,
        product=first,
        w_as=w_as,
        swapped=swapped,
        q_place=q[1].of(place_of(left), groups),
        k_place=k[1].of(place_of(right), groups),
        v_place=v_as.of(place_of(values[1 - at]), v_groups),
        alpha=alpha,
        beta=_in_groups(score.beta, score.number, w_as.split_groups, v_groups),
        by_data=score.by_data,
        by_size=score.by_size,
        emptied=score.emptied,
        reason=reason or _describe_uneven(alpha),
    )


def _full_shape(node: ir.Node, shapes: Sequence[Shape]) -> Shape:
    """Return the shape of a product's result, from those of its factors."""
    product = read_product(node, shapes)
    if product is None:
        return ()
    sizes: dict[int, int] = {}
    left = product.left_as.sizes(shapes[0])
    right = product.right_as.sizes(shapes[1])
    groups = torch.broadcast_shapes(left[0], right[0])
    lengths = (*groups, *left[1], *right[2])
    for axis, length in zip(product.out_as.order, lengths, strict=True):
        sizes[axis] = length
    return tuple(sizes[axis] for axis in sorted(sizes))


def _number_scores(
    score: Score,
    w_as: Matrices,
    groups: Shape,
    product: Product,
    scores: Shape,
) -> tuple[bool, bool]:
    """Return how weights are ordered, compared with the elements of the product of the scores.

    Returns:
        Whether its columns are the queries, and whether groups, queries and keys are in order.
    """
    in_order = score.number.device.type == "meta"
    weights = tuple(score.number.shape)
    natural = product.out_as.order == tuple(range(len(scores)))
    weights_natural = w_as.order == tuple(range(len(weights)))
    sides = [math.prod(lengths) for lengths in w_as.sizes(weights)]
    score_sides = [math.prod(lengths) for lengths in product.out_as.sizes(scores)]
    if in_order and natural and weights_natural and sides == score_sides:
        return False, True
    number = w_as.of(score.numbers, groups)
    expected = product.out_as.of(number_elements(scores))
    if number.shape == expected.shape and torch.equal(number, expected):
        return False, True
    transposed = expected.transpose(1, 2)
    if number.shape == transposed.shape and torch.equal(number, transposed):
        return True, True
    rank = torch.empty(expected.numel(), dtype=torch.int64)
    rank[expected.flatten()] = torch.arange(expected.numel())
    column = rank[number] % expected.shape[2]
    first_column = column[:, :, :1]
    one_column = bool((first_column == column).all())
    return expected.shape[2] > 1 and one_column, False


def _is_along_keys(score: Score, w_as: Matrices, groups: Shape) -> bool:
    """Return whether the softmax was along the columns of the weights, in every row."""
    if score.softened is None:
        return False
    softened, axes = score.softened
    shape = softened.shape
    in_order = softened.device.type == score.number.device.type == "meta"
    if in_order and score.number.shape == shape and not w_as.heads:
        columns = w_as.order[w_as.leading + w_as.rows :]
        along = {axis for axis in columns if shape[axis] > 1}
        return along == {axis % len(shape) for axis in axes if shape[axis] > 1}
    numbers = number_in_order(softened)
    numbers_of_elements = torch.arange(shape.numel()).reshape(shape)
    firsts = numbers_of_elements.amin(axes, keepdim=True)
    count = int(numbers.max()) + 1
    first_of = torch.empty(count, dtype=torch.int64)
    first_of[numbers.flatten()] = firsts.expand(shape).flatten()
    rows = w_as.of(first_of[score.numbers], groups)
    return bool((rows == rows[:, :, :1]).all())


def _in_groups(
    number: Number,
    like: Tensor,
    reading: Callable[[Tensor, Shape], Tensor],
    groups: Shape,
) -> Number:
    """Return a factor or a bias as it is read in groups, or as a float if it is one number."""
    if not isinstance(number, Tensor):
        return number
    if number.numel() == 1:
        return float(number)
    return reading(number.expand(like.shape), groups)


def _describe_uneven(alpha: Number) -> str:
    """Return why factors are not those of scores of one product each, or ""."""
    if not isinstance(alpha, Tensor):
        return ""
    even = unshare(alpha) == alpha[:, :1, :1]
    if not bool(even.all()):
        return "its scores have a factor that differs between tokens"
    return ""


def read_fused_attention(node: ir.Node, values: Sequence[Value | None]) -> Attention | str:
    """Return the attention that an ``Attention`` node computes, or why it is not served.

    The mask, if any, is not read: the caller adds it.
    """
    for value in values[:3]:
        if value is None or not value.follows_input:
            return "queries, keys or values do not depend on the input"
    q, k, v = (value for value in values[:3] if value is not None)
    q_as = _heads_of(node, q.shape, "q")
    k_as = _heads_of(node, k.shape, "kv")
    v_as = _heads_of(node, v.shape, "kv")
    groups = q_as.sizes(q.shape)[0]
    k_groups = k_as.sizes(k.shape)[0]
    v_groups = v_as.sizes(v.shape)[0]
    if k_groups != groups or v_groups != groups:
        return "several heads share their keys"
    reason = ""
    if read_integer(node, "is_causal") or read_integer(node, "unidirectional"):
        reason = "its attention is causal"
    elif read_attribute(node, "softcap", 0.0) or _has_more_inputs(node, values):
        reason = f"{node.op_type} has inputs that are not read"
    width = q_as.sizes(q.shape)[2][0]
    scale = read_attribute(node, "scale", 0.0)
    return Attention(
        q=_input(node, 0),
        q_as=q_as,
        k=_input(node, 1),
        k_as=k_as,
        v=_input(node, 2),
        v_as=v_as,
        out=node.outputs[0],
        out_as=q_as,
        softmax=node,
        groups=groups,
        v_groups=groups,
        q_place=q_as.of(place_of(q)),
        k_place=k_as.of(place_of(k)),
        v_place=v_as.of(place_of(v)),
        alpha=float(scale) or width**-0.5,  # type: ignore[arg-type]
        beta=0.0,
        by_data=False,
        reason=reason,
    )


def _has_more_inputs(node: ir.Node, values: Sequence[Value | None]) -> bool:
    """Return whether a whole attention has inputs beside queries, keys, values and mask."""
    for at, value in enumerate(values[3:], 3):
        is_mask = at == mask_at(node)
        if value is not None and not is_mask:
            return True
    return False


def mask_at(node: ir.Node) -> int:
    """Return the number of the input of a whole attention that is added to its scores."""
    if node.op_type == "Attention":
        return 3
    return 5


def _heads_of(node: ir.Node, shape: Shape, whose: str) -> Matrices:
    if len(shape) == 4:
        return Matrices.last(4)
    heads = read_integer(node, f"{whose}_num_heads") or read_integer(node, "num_heads", 1)
    return Matrices((0, 2, 1, 3), 2, 1, heads)
