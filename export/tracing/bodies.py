"""Attaching the function bodies: the last pass, since optimisers inline or drop functions."""

from __future__ import annotations

import importlib

import onnx
import onnx.inliner

from ...plugins.domain import DOMAIN
from ...plugins.operators import OPERATORS


def used_operators(model: onnx.ModelProto) -> list[str]:
    """Return the names of the nystra operators in a model, sorted, each once."""
    return sorted({node.op_type for node in model.graph.node if node.domain == DOMAIN})


def attach_bodies(model: onnx.ModelProto, opset: int) -> None:
    """Add to a model, in place, the body of every nystra operator it uses."""
    present = {function.name for function in model.functions}
    for name in used_operators(model):
        if name not in present:
            module = importlib.import_module(
                f"...plugins.operators.{OPERATORS[name]}.body", __package__
            )
            model.functions.append(module.body(opset))


def inline_bodies(model: onnx.ModelProto) -> None:
    """Replace every nystra node of a model, in place, by its body: plain ONNX."""
    inlined = onnx.inliner.inline_local_functions(model)
    kept = [opset for opset in inlined.opset_import if opset.domain != DOMAIN]
    del inlined.opset_import[:]
    inlined.opset_import.extend(kept)
    del inlined.functions[:]
    model.CopyFrom(inlined)
