"""The bodies of operators as model-local ONNX functions."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import onnx

from ..domain import DOMAIN
from . import OPERATORS, find_schema
from .body_builder import BodyBuilder


class FusedBody(BodyBuilder):
    """Writes the body of one node with ``Attention``, of opset 23 and later."""

    fused = True

    def attend(self, q: str, k: str, v: str, bias: str | None, scores: tuple[str, str]) -> str:
        """Return softmax(q k^T + bias) v, (A, h, N, e); arguments as of `BodyBuilder.attend`."""
        if bias is None:
            return self.op("Attention", q, k, v, scale=1.0)
        # Engines read a last axis of 1 in other ways, and some take no other of 1: ONNX's mask has
        # all queries and keys.
        mask = self.op("Expand", bias, self.shape(1, 1, *scores))
        return self.op("Attention", q, k, v, mask, scale=1.0)


LARGE_WINDOW = 32 * 32
"""Tokens of a window from which its scores are too many to hold all of them."""


def operator_body(
    name: str, opset: int, nodes: Iterable[onnx.NodeProto] = ()
) -> onnx.FunctionProto:
    """Return the body of an operator for a model of that opset of ONNX.

    Args:
        name: Node type.
        opset: The model's.
        nodes: The model's nodes of that type. If one has a window of `LARGE_WINDOW` tokens, exact
            attention is computed by rows of queries, in less memory, but in a Loop, which
            engines that fuse attention (OpenVINO, TensorRT) do not fuse. Those of a Nystrom form
            hold ``NystraPinv``, with the attributes of these nodes. Without nodes the body is for
            any attributes, and for small windows.

    Raises:
        NystraError: There is no such operator, or no body is written for this opset.
    """
    schema = find_schema(name)
    write = import_module(f".{OPERATORS[name]}.body", __package__).write
    served = list(nodes)
    builder = BodyBuilder(
        schema,
        opset,
        by_rows=any(map(_is_large, served)),
        served=[values_of(node) for node in served],
    )
    return builder.function(write)


def operator_bodies(
    name: str, opset: int, nodes: Iterable[onnx.NodeProto] = ()
) -> list[onnx.FunctionProto]:
    """Return the body of an operator, as `operator_body`, and those of the operators in it."""
    body = operator_body(name, opset, nodes)
    inner = sorted({node.op_type for node in body.node if node.domain == DOMAIN})
    return [body, *(operator_body(other, opset) for other in inner)]


def write_fused_body(node: onnx.NodeProto, opset: int) -> onnx.FunctionProto:
    """Return the body of one node alone, whose exact attention is ONNX's operator ``Attention``.

    Args:
        node: A node of nystra; its attributes are constants in the body.
        opset: The model's, 23 or later.

    Raises:
        NystraError: There is no such operator, or no body is written for this opset.
    """
    schema = find_schema(node.op_type)
    write = import_module(f".{OPERATORS[node.op_type]}.body", __package__).write
    return FusedBody(schema, opset, values=values_of(node)).function(write)


def values_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Return the attributes of a node of nystra; those that it does not have are the defaults."""
    return {a.name: a.default for a in find_schema(node.op_type).attributes} | {
        a.name: onnx.helper.get_attribute_value(a) for a in node.attribute
    }


def _is_large(node: onnx.NodeProto) -> bool:
    sizes = {attribute.name: attribute.i for attribute in node.attribute}
    return bool(sizes.get("window_h", 0) * sizes.get("window_w", 0) >= LARGE_WINDOW)
