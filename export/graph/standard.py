"""A model file of standard operators whose exact attention is ONNX's ``Attention``."""

from __future__ import annotations

import onnx

from ...plugins.domain import DOMAIN, opset_of
from ...plugins.operators.functions import write_fused_body
from ..execute.editing import PassResult
from ..tracing.bodies import inline_bodies


def make_standard(model: onnx.ModelProto) -> PassResult:
    """Rewrite a model in standard operators, in place.

    The nodes of nystra become bodies of their own, in which their attributes are constants and
    exact attention is ``Attention``.

    Args:
        model: A model of opset 23 or later, with or without bodies.
    """
    opset = opset_of(model)
    others = [function for function in model.functions if function.domain != DOMAIN]
    del model.functions[:]
    model.functions.extend(others)
    nodes = [node for node in model.graph.node if node.domain == DOMAIN]
    for number, node in enumerate(nodes):
        body = write_fused_body(node, opset)
        node.op_type = body.name = f"{body.name}_{number}"
        model.functions.append(body)
    inline_bodies(model)
    return PassResult(model)
