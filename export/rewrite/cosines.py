"""Finds queries and keys that are divided by their norms: attention by cosines, as in Swin V2."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from ..search.movement import read_integer, read_numbers
from ..search.operators import rule_of
from ..search.values import Attention, Matrices
from .channels import find_factor
from .map_form import MapWriter


@dataclass(frozen=True)
class Normalized:
    """A tensor divided by norms.

    Attributes:
        quotient: The result.
        source: The tensor that is divided.
        epsilon: The least norm that it is divided by.
    """

    quotient: ir.Value
    source: ir.Value
    epsilon: float


def find_normalized_tokens(
    writer: MapWriter, core: Attention
) -> tuple[Normalized, Normalized] | None:
    """Return the divisions of queries and keys by their norms over the channels of a head.

    None if they are not both divided, by norms with the same least one, with nothing but moves and
    multiplications by a number between the division and the product.

    Args:
        writer: Writes the tensors of the attention.
        core: The attention.
    """
    queries = _find_normalized(writer, core.q, core.q_as)
    keys = _find_normalized(writer, core.k, core.k_as)
    if queries is None or keys is None or queries.epsilon != keys.epsilon:
        return None
    return queries, keys


def _find_normalized(writer: MapWriter, ir_value: ir.Value, read: Matrices) -> Normalized | None:
    columns = read.order[read.leading + read.rows :]
    if read.heads or len(columns) != 1:
        return None
    axis = columns[0]
    while (before := _find_source(writer, ir_value, axis)) is not None:
        ir_value, axis = before
    node = ir_value.producer()
    if node is None or node.op_type != "Div":
        return None
    if writer.data_of(node) != list(node.inputs):
        return None
    source, divisor = node.inputs
    if source is None or divisor is None:
        return None
    epsilon = _find_epsilon(writer, divisor, source, axis)
    if epsilon is None:
        return None
    return Normalized(ir_value, source, epsilon)


def _find_source(writer: MapWriter, ir_value: ir.Value, axis: int) -> tuple[ir.Value, int] | None:
    """Return the tensor that a node moves or multiplies by a number, and its axis, or None."""
    node = ir_value.producer()
    data = [] if node is None else writer.data_of(node)
    if node is None or len(data) != 1:
        return None
    source = writer.value(data[0]).shape
    shape = writer.value(ir_value).shape
    if node.op_type == "Transpose":
        reversed_axes = range(len(shape))[::-1]
        order = read_numbers(node, (), "perm", 1) or reversed_axes
        return data[0], order[axis]
    rule = rule_of(node)
    last = shape[axis:]
    ends_alike = source[-len(last) :] == last
    if rule is not None and rule.ordered and ends_alike:
        return data[0], len(source) - len(last)
    is_same = node.op_type == "Expand"
    is_same = is_same or find_factor(writer, node, data[0]) is not None
    if is_same and source == shape:
        return (data[0], axis)
    return None


def _find_epsilon(
    writer: MapWriter,
    divisor: ir.Value,
    source: ir.Value,
    axis: int,
) -> float | None:
    """Return the least value of a divisor that is the norm of a tensor along an axis, else None."""
    node = divisor.producer()
    if node is not None and node.op_type == "Expand":
        source_of_expand = node.inputs[0]
        node = None if source_of_expand is None else source_of_expand.producer()
    if node is None or node.op_type not in ("Clip", "Max"):
        return None
    if len(writer.data_of(node)) != 1:
        return None
    _, *constants = writer.constants_of(node)
    bounds = [None if bound is None else float(bound) for bound in constants]
    norm = writer.data_of(node)[0].producer()
    if norm is None or norm.op_type != "ReduceL2" or norm.inputs[0] is not source:
        return None
    rank = len(writer.value(source).shape)
    axes = read_numbers(norm, writer.constants_of(norm), "axes", 1)
    along = [] if axes is None else [axis % rank for axis in axes]
    if along != [axis % rank] or not read_integer(norm, "keepdims", 1):
        return None
    [lowest, *others] = bounds or [None]
    if lowest is None or lowest <= 0 or any(others):
        return None
    return lowest
