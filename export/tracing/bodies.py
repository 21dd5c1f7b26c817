"""Attaches function bodies. This is the last pass, since optimizers inline or drop functions."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx.inliner

from ...plugins.domain import DOMAIN
from ...plugins.operators.functions import operator_body


def used_operators(model: onnx.ModelProto) -> list[str]:
    """Return the names of the nystra operators in a model, sorted, each once."""
    return sorted({node.op_type for node in model.graph.node if node.domain == DOMAIN})


def nodes_of_type(model: onnx.ModelProto, name: str) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a nystra operator in a model."""
    return (node for node in model.graph.node if (node.domain, node.op_type) == (DOMAIN, name))


def attach_bodies(model: onnx.ModelProto, opset: int) -> None:
    """Add the body of every nystra operator that a model uses to the model, in place.

    Args:
        model: The model.
        opset: Version of the default domain in the bodies.
    """
    present = {function.name for function in model.functions}
    for name in used_operators(model):
        if name not in present:
            model.functions.append(operator_body(name, opset, nodes_of_type(model, name)))


def inline_bodies(model: onnx.ModelProto) -> None:
    """Replace every nystra node of a model by its body, in place; the result is plain ONNX."""
    inlined = onnx.inliner.inline_local_functions(model)
    kept = [opset for opset in inlined.opset_import if opset.domain != DOMAIN]
    del inlined.opset_import[:]
    inlined.opset_import.extend(kept)
    del inlined.functions[:]
    model.CopyFrom(inlined)
