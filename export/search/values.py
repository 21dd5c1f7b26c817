"""The values of a search: tensors with their places and their relation to scores."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor

from ...core.ports.port import Shape
from ..execute.sized import Sized
from .places import find_agreed, is_zero, reshape_shared, unshare

Number = Tensor | float

_NO_NUMBERS = torch.zeros(0, dtype=torch.int64)


class Hint(enum.Enum):
    """What the scores of a later softmax may be if they are no matrix product of two tensors.

    Each value is the reason that is reported for attention with such scores.
    """

    PRODUCTS = "two tensors multiplied element by element"
    SUMS = "its scores are sums of element-wise products, not a matrix product"
    CONSTANT_KEYS = "its keys do not depend on the input"
    CONSTANT_QUERIES = "its queries do not depend on the input"


@dataclass(frozen=True)
class Matrices:
    """How a tensor is read as a stack of matrices (g, rows, columns).

    Its axes are reordered, then the first ones become one axis g, and the following ones rows.

    Attributes:
        order: Axes of the tensor in the order of the stack.
        leading: How many of them are of g.
        rows: How many of the following ones are of the rows; the others are of the columns.
        heads: Number of heads that the last axis of the tensor is split into first; 0 if it is not.
    """

    order: tuple[int, ...]
    leading: int
    rows: int
    heads: int = 0

    @classmethod
    def last(cls, rank: int, *, transposed: bool = False) -> Matrices:
        """Return the last two axes of a tensor as matrices, exchanged if ``transposed``."""
        order = [*range(rank)]
        if transposed:
            order[-2:] = order[:-3:-1]
        return cls(tuple(order), rank - 2, 1)

    @property
    def transposed(self) -> Matrices:
        """The same matrices, transposed."""
        first = self.order[: self.leading]
        rows = self.order[self.leading :][: self.rows]
        columns = self.order[self.leading + self.rows :]
        order = (*first, *columns, *rows)
        return replace(self, order=order, rows=len(columns))

    def split(self, shape: Sequence[int]) -> Shape:
        """Return the shape of a tensor after its last axis was split into heads."""
        if not self.heads:
            return tuple(shape)
        width = shape[-1] // self.heads
        return (*shape[:-1], self.heads, width)

    def sizes(self, shape: Sequence[int]) -> tuple[Shape, Shape, Shape]:
        """Return the lengths of the axes of g, of the rows and of the columns."""
        split = self.split(shape)
        sides = tuple(split[axis] for axis in self.order)
        end = self.leading + self.rows
        return sides[: self.leading], sides[self.leading : end], sides[end:]

    def of(self, numbers: Tensor, groups: Sequence[int] = ()) -> Tensor:
        """Return numbers of a tensor as a stack; its first axes are expanded to ``groups``."""
        stack = self.split_groups(numbers, groups)
        rows, columns = stack.shape[-2:]
        groups_in_all = math.prod(stack.shape[:-2])
        return reshape_shared(stack, (groups_in_all, rows, columns))

    def split_groups(self, numbers: Tensor, groups: Sequence[int] = ()) -> Tensor:
        """Return numbers of a tensor as a stack whose first axes are apart, (*g, rows, columns)."""
        first, rows, columns = self.sizes(numbers.shape)
        if self.heads:
            numbers = reshape_shared(numbers, self.split(numbers.shape))
        numbers = numbers.permute(self.order)
        if groups and tuple(groups) != first:
            more = [1] * (len(groups) - len(first))
            numbers = numbers.reshape(*more, *numbers.shape)
            numbers = numbers.expand(*groups, *rows, *columns)
            first = tuple(groups)
        matrix = (math.prod(rows), math.prod(columns))
        return reshape_shared(numbers, (*first, *matrix))

    def back(self, numbers: Tensor, shape: Sequence[int]) -> Tensor:
        """Return numbers of a stack in the axes of a tensor of this shape."""
        first, rows, columns = self.sizes(shape)
        spread = reshape_shared(numbers, (*first, *rows, *columns))
        axes = range(len(self.order))
        inverse = [self.order.index(axis) for axis in axes]
        return reshape_shared(spread.permute(inverse), shape)


@dataclass(frozen=True)
class Product:
    """A product of two tensors that depend on the input: scores are some of them.

    Attributes:
        node: The node.
        left: Its first factor, (g, N, d).
        right: Its second factor, (g, d, Nk).
        left_as: How the first factor is read.
        right_as: How the second one is.
        out_as: How the result (g, N, Nk) is read.
        factor: Number that the product is multiplied by.
    """

    node: ir.Node
    left: ir.Value
    right: ir.Value
    left_as: Matrices
    right_as: Matrices
    out_as: Matrices
    factor: float = 1.0


def number_in_order(number: Tensor) -> Tensor:
    """Return numbers, those of elements in order if there is only their shape (`Score.number`)."""
    if number.device.type != "meta":
        return number
    return torch.arange(number.numel()).reshape(number.shape)


@dataclass
class Score:
    """A tensor as a function of a product of queries and keys: alpha * product[number] + beta.

    Attributes:
        product: The product.
        number: For each element, the number of its element of the product, in the order of its
            tensor; only the shape, on the meta device, while the elements have that order.
        alpha: Factor, a number, or a tensor of float32 or float64.
        beta: Added term, a number, or a tensor of float32 or float64: position bias and mask.
        by_data: Whether the added term depends on the input.
        by_size: Values that depend on the size and are part of the added term.
        replaced: The largest finite number that was written in place of a score, or None.
        masks: Conditions by which -inf was written in place of scores, and whether it was where
            they are true.
        lowered: Axes along which the scores were lowered by their maximum, or None.
        emptied: Whether weights of queries without a key are set to zero behind the softmax.
        softmax: Node of the softmax that was applied, or None.
        axes: Axes of the softmax, counted from the end, until the weights are moved.
        softened: ``number`` of the scores that the softmax was given, and its axes there.
        power: Result of exp that is not divided by its sum yet, or None.
        reason: Why the attention cannot be replaced, or "".
        hint: What the scores are if they are no product.
    """

    product: Product | None
    number: Tensor
    alpha: Number = 1.0
    beta: Number = 0.0
    by_data: bool = False
    by_size: tuple[ir.Value, ...] = ()
    replaced: float | None = None
    masks: tuple[tuple[ir.Value, bool], ...] = ()
    lowered: tuple[int, ...] | None = None
    emptied: bool = False
    softmax: ir.Node | None = None
    axes: tuple[int, ...] = ()
    softened: tuple[Tensor, tuple[int, ...]] | None = None
    power: ir.Value | None = None
    reason: str = ""
    hint: Hint | None = None

    @property
    def numbers(self) -> Tensor:
        """The number of each element, also while the elements have the product's order."""
        return number_in_order(self.number)

    def but(self, reason: str) -> Score:
        """Return the score with a reason, unless it has one."""
        if self.reason:
            return self
        return replace(self, reason=reason)


@dataclass
class Value:
    """A value of the graph at one size.

    Attributes:
        shape: Its shape.
        place: Place of each element; None if the value does not depend on the input.
        score: The value as a function of a product, or None.
        hint: What the value may be to a later softmax, if it has no score.
    """

    shape: Shape
    place: Tensor | None = None
    score: Score | None = None
    hint: Hint | None = None

    @property
    def follows_input(self) -> bool:
        """Whether the value depends on the input of the network."""
        return self.place is not None

    def forget(self) -> None:
        """Free the numbers of a score."""
        if self.score is not None:
            self.score = replace(self.score, number=_NO_NUMBERS, softened=None, alpha=1.0, beta=0.0)


@dataclass(frozen=True)
class Step:
    """One node with its values at the size of the search.

    Attributes:
        node: The node.
        inputs: Values of its inputs; None for one that is omitted.
        outs: Shapes of its results.
        sized: The graph at that size.
        varying: Names of the constants whose elements depend on the size.
    """

    node: ir.Node
    inputs: Sequence[Value | None]
    outs: Sequence[Shape]
    sized: Sized
    varying: frozenset[str] = frozenset()

    def data(self) -> list[int]:
        """Return the numbers of the inputs that depend on pixels."""
        values = enumerate(self.inputs)
        return [at for at, value in values if value is not None and value.follows_input]

    def constant(self, at: int) -> Tensor:
        """Return an input that depends on no pixel, by its number."""
        ir_value = self.node.inputs[at]
        if ir_value is None:
            raise ValueError(f"{self.node.op_type} without its input {at}")
        return self.sized.constant(ir_value)

    def list_varying_inputs(self) -> list[ir.Value]:
        """Return the inputs without pixels whose elements depend on the size."""
        values = [value for value in self.node.inputs if value is not None]
        return [value for value in values if str(value.name) in self.varying]

    def varies(self, at: int) -> bool:
        """Return whether elements of an input without pixels depend on the size."""
        ir_value = self.node.inputs[at]
        return ir_value is not None and str(ir_value.name) in self.varying


def has_empty_rows(beta: Tensor) -> bool:
    """Return whether all biases of a query are -inf, (..., N, Nk)."""
    highest = unshare(beta).amax(-1)
    return bool((highest == -torch.inf).any())


@dataclass(kw_only=True)
class Attention:
    """One attention of a graph: softmax(alpha q k^T + beta) v in groups g (windows times heads).

    Attributes:
        q_place: Places of the queries, (g, N, d).
        k_place: Places of the keys, (g, Nk, d).
        v_place: Places of the values, (g, Nk, e).
        alpha: Factor of the scores, broadcastable to (g, N, Nk).
        beta: Term added to the scores, (*g, N, Nk); after `without_pairs` only whether there is
            one.
        by_data: Whether the added term depends on the input.
        by_size: Values that depend on the size and are part of the added term.
        emptied: Whether the result is zero for queries without a key, which there may be.
        reason: Why the attention cannot be replaced, or "".
        q: Value with the queries; ``q_as`` reads it as (g, N, d).
        k: Value with the keys; ``k_as`` reads it as (g, Nk, d).
        v: Value with the values; ``v_as`` reads it as (g, Nk, e).
        out: Value of the result; ``out_as`` reads it as (g, N, e).
        softmax: Node of the softmax, or of the fused operator.
        groups: Lengths of the axes of g in queries and keys.
        v_groups: Lengths of the axes of g in values and result.
        product: The product of queries and keys; None for a fused operator.
        w_as: How the weights are read as (g, N, Nk); None for a fused operator.
        mask: Value that a fused operator adds to the scores, or None.
        swapped: Whether the scores are k q^T.
    """

    q_place: Tensor
    k_place: Tensor
    v_place: Tensor
    alpha: Number
    beta: Number
    by_data: bool
    by_size: tuple[ir.Value, ...] = ()
    emptied: bool = False
    reason: str = ""
    q: ir.Value
    k: ir.Value
    v: ir.Value
    out: ir.Value
    q_as: Matrices
    k_as: Matrices
    v_as: Matrices
    out_as: Matrices
    softmax: ir.Node
    groups: Shape
    v_groups: Shape
    product: Product | None = None
    w_as: Matrices | None = None
    swapped: bool = False
    mask: ir.Value | None = None

    def without_pairs(self) -> Attention:
        """Return the attention without values per pair: with one factor per group."""
        alpha = self.alpha
        beta = self.beta
        emptied = self.emptied
        if not self.by_data and not self.by_size:
            emptied = emptied and isinstance(beta, Tensor) and has_empty_rows(beta)
        if isinstance(beta, Tensor):
            beta = torch.tensor(0.0 if is_zero(beta) else 1.0, dtype=torch.float64)
        if isinstance(alpha, Tensor):
            alpha = alpha[:, :1, :1].clone()
        return replace(self, alpha=alpha, beta=beta, emptied=emptied)

    def map_codes(self) -> Tensor:
        """Return the sorted places of the map that the queries cover."""
        codes = self.q_place[..., 0].flatten()
        covered: Tensor = codes[codes >= 0].unique()
        return covered


@dataclass(frozen=True)
class Unmatched:
    """Attention that cannot be replaced.

    Attributes:
        softmax: Node of its softmax.
        reason: Why it cannot be replaced.
    """

    softmax: ir.Node
    reason: str


def token_places(places: Tensor) -> tuple[Tensor, Tensor]:
    """Return the place of each token and whether all its channels have it, (g, N) both."""
    place, exact = find_agreed(places, 2)
    return place[..., 0], exact[..., 0]


def as_number(number: Any) -> Tensor:
    """Return a number as float64, and a tensor with axes as float32 unless it is float64.

    Values per pair of tokens take most of the memory of a search.
    """
    if isinstance(number, Tensor) and number.dim():
        if number.dtype == torch.float64:
            return number
        return number.float()
    return torch.as_tensor(number, dtype=torch.float64)


def lighter(value: Tensor) -> Number:
    """Return a tensor without axes as a number, which needs no memory per pair of tokens."""
    if value.dim():
        return value
    return float(value)
