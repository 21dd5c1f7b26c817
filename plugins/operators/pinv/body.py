"""``NystraPinv`` as a model-local ONNX function."""

from __future__ import annotations

import onnx

from ..body_builder import BodyBuilder
from ..pinv_body import pinv_nodes
from .schema import SCHEMA


def body(opset: int) -> onnx.FunctionProto:
    """Return the function for a model of that opset of ONNX.

    Raises:
        NystraError: No body is written for this opset.
    """
    return BodyBuilder(SCHEMA, opset).function(write)


def write(nodes: BodyBuilder) -> str:
    """Write the nodes; return the result."""
    a = nodes.float32(nodes.inputs[0])
    m = nodes.size(a, -1)
    z = pinv_nodes(nodes, nodes.reshape(a, -1, m, m), 3, m)
    return nodes.op("Reshape", z, nodes.op("Shape", a))
