"""``NystraPinv`` as a model-local ONNX function."""

from __future__ import annotations

from ..body_builder import BodyBuilder
from ..pinv_body import pinv_nodes


def write(nodes: BodyBuilder) -> str:
    """Write the nodes; return the result."""
    a = nodes.float32(nodes.inputs[0])
    m = nodes.size(a, -1)
    z = pinv_nodes(nodes, nodes.reshape(a, -1, m, m), 3, m)
    return nodes.op("Reshape", z, nodes.op("Shape", a))
