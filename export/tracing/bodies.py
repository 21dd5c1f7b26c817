"""Attaches function bodies. This is the last pass, since optimizers inline or drop functions."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx.inliner

from ...plugins.domain import DOMAIN, opset_of
from ...plugins.operators.functions import operator_bodies
from ..execute.editing import PassResult

_OPSETS = (18, 20)
"""The oldest and newest opsets that nodes are traced for; those of others have the same meaning."""


def list_operators(model: onnx.ModelProto) -> list[str]:
    """Return the names of the nystra operators in a model, sorted, each once."""
    nodes = [node for node in model.graph.node if node.domain == DOMAIN]
    return sorted({node.op_type for node in nodes})


def nodes_of_type(model: onnx.ModelProto, name: str) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a nystra operator in a model."""
    for node in model.graph.node:
        if node.domain == DOMAIN and node.op_type == name:
            yield node


def choose_traced_opset(opset: int) -> int:
    """Return the opset that nodes are traced for, of a model of that opset."""
    return min(max(opset, _OPSETS[0]), _OPSETS[1])


def attach_bodies(model: onnx.ModelProto) -> None:
    """Add to a model, in place, the body of every nystra operator that it uses, at its opset.

    Also those of the operators that are in these bodies.
    """
    opset, present = opset_of(model), {function.name for function in model.functions}
    for name in list_operators(model):
        for body in operator_bodies(name, choose_traced_opset(opset), nodes_of_type(model, name)):
            if body.name in present:
                continue
            for entry in body.opset_import:
                if entry.domain == "":
                    entry.version = opset
            model.functions.append(body)
            present.add(body.name)


def inline_bodies(model: onnx.ModelProto) -> PassResult:
    """Replace every nystra node of a model by its body, in place; the result is plain ONNX."""
    inlined = onnx.inliner.inline_local_functions(model)
    opsets = [opset for opset in inlined.opset_import if opset.domain != DOMAIN]
    del inlined.opset_import[:]
    inlined.opset_import.extend(opsets)
    del inlined.functions[:]
    model.CopyFrom(inlined)
    return PassResult(model)
