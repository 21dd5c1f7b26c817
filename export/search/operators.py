"""The operators that the search has a rule for: one row an operator, in one table.

An operator without a row is left alone: its result has the places of an input of the same shape, or
those of a new map.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import onnx_ir as ir

from . import movement, scores
from .movement import Move
from .scores import Change
from .values import Hint, Step


class Kind(enum.Enum):
    """What an operator does with the elements of its inputs."""

    MOVES = "moves elements"
    PADS = "adds elements around a tensor"
    POINTWISE = "computes each element from elements at the same place"
    NORM = "normalizes channels"
    REDUCES = "reduces axes"
    PRODUCT = "multiplies matrices"
    CONVOLUTION = "computes a map from a map"
    SOFTMAX = "softmax"
    FUSED = "computes a whole attention"


@dataclass(frozen=True)
class Operator:
    """The rule of an operator.

    Attributes:
        kind: What it does.
        move: Moves numbers as the operator moves elements.
        moved: Numbers of the inputs whose elements are moved; () for all.
        ordered: Whether the elements of its result are in the order of its input's.
        change: What it does to scores; None: its result is no score.
    """

    kind: Kind
    move: Move | None = None
    moved: tuple[int, ...] = (0,)
    ordered: bool = False
    change: Change | None = None


def _moves(move: Move = movement.as_onnx_does, *moved: int) -> Operator:
    return Operator(Kind.MOVES, move, moved or (0,))


_ORDERED = Operator(Kind.MOVES, movement.reshape, ordered=True)
_SAME = Operator(Kind.MOVES, movement.reshape, ordered=True, change=scores.keep_score)


def _each(names: str, operator: Operator) -> dict[str, Operator]:
    return dict.fromkeys(names.split(), operator)


OPERATORS: dict[str, Operator] = {
    **_each("Reshape Flatten Squeeze Unsqueeze", _ORDERED),
    **_each("Identity Cast CastLike Dropout", _SAME),
    "Transpose": _moves(movement.transpose),
    "Slice": _moves(movement.cut),
    "Gather": _moves(movement.gather),
    "Concat": Operator(Kind.MOVES, movement.concat, ()),
    "Split": _moves(movement.split),
    "Expand": _moves(movement.expand),
    "Tile": _moves(movement.tile),
    **_each("GatherElements GatherND Compress Trilu ReverseSequence", _moves()),
    **_each("DepthToSpace SpaceToDepth", _moves()),
    **_each("ScatterND ScatterElements Scatter", _moves(movement.as_onnx_does, 0, 2)),
    "Pad": Operator(Kind.PADS, movement.pad_numbers),
    "Add": Operator(Kind.POINTWISE, change=scores.add_term),
    "Sub": Operator(Kind.POINTWISE, change=scores.subtract_term),
    "Mul": Operator(Kind.POINTWISE, change=scores.multiply_score),
    "Div": Operator(Kind.POINTWISE, change=scores.divide_score),
    "Where": Operator(Kind.POINTWISE, change=scores.choose_score),
    "Exp": Operator(Kind.POINTWISE, change=scores.begin_softmax),
    **_each(
        "Abs Neg Sqrt Reciprocal Log Pow Sigmoid Tanh Relu LeakyRelu PRelu Elu Celu Selu Gelu Mish "
        "HardSigmoid HardSwish Swish Softplus Softsign ThresholdedRelu Clip Erf Sin Cos Tan Floor "
        "Ceil Round Sign Max Min Mean Sum Mod Not And Or Xor Equal Less Greater LessOrEqual "
        "GreaterOrEqual IsNaN IsInf QuickGelu FastGelu BiasGelu Shrink",
        Operator(Kind.POINTWISE),
    ),
    **_each(
        "LayerNormalization RMSNormalization SimplifiedLayerNormalization LpNormalization",
        Operator(Kind.NORM),
    ),
    **_each(
        "ReduceSum ReduceMean ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceProd ReduceSumSquare "
        "ReduceLogSumExp ArgMax ArgMin",
        Operator(Kind.REDUCES),
    ),
    **_each("MatMul FusedMatMul Gemm Einsum", Operator(Kind.PRODUCT)),
    **_each("Conv FusedConv ConvTranspose AveragePool MaxPool LpPool", Operator(Kind.CONVOLUTION)),
    "Softmax": Operator(Kind.SOFTMAX),
    **_each("Attention MultiHeadAttention", Operator(Kind.FUSED)),
}
"""The rules by the name of the operator."""

DOMAINS = ("", "ai.onnx", "com.microsoft")
"""Domains whose operators the table names; those of others are left alone."""

RESIZES = ("Pool", "Resize", "Upsample", "GridSample", "RoiAlign", "DeformConv", "Col2Im")
"""Parts of the names of operators whose result is a new map."""


def rule_of(node: ir.Node) -> Operator | None:
    """Return the rule of a node's operator, or None if it is left alone."""
    rule = OPERATORS.get(node.op_type) if node.domain in DOMAINS else None
    if rule is not None and node.op_type == "Attention" and node.domain == "com.microsoft":
        return None  # it projects its queries, keys and values itself
    return rule


def find_hint(rule: Operator | None, step: Step) -> Hint | None:
    """Return the hint for the results of an operator, or None."""
    if rule is None:
        return None
    data = [step.inputs[at] for at in step.data()]
    two_values = len(data) == 2 and data[0] is not data[1]
    if step.node.op_type == "Mul" and two_values:
        return Hint.PRODUCTS
    if step.node.op_type == "MatMul" and len(data) == 1:
        if step.data() == [0]:
            return Hint.CONSTANT_KEYS
        return Hint.CONSTANT_QUERIES
    hints = {value.hint for value in data if value is not None}
    if len(hints) != 1:
        return None
    hint = hints.pop()
    if step.node.op_type in ("ReduceSum", "ReduceMean"):
        if hint is Hint.PRODUCTS:
            return Hint.SUMS
        return None
    if rule.kind is Kind.MOVES or rule.change is not None:
        return hint
    return None
