"""Names a reader knows, and nothing that differs from one run to the next."""

from __future__ import annotations

import ast
from collections.abc import Iterable

import onnx

from ...plugins.operators.schema import DOMAIN

_SCOPES = "pkg.torch.onnx.name_scopes"
_AXES = {0: "batch", 2: "height", 3: "width"}


def tidy(model: onnx.ModelProto, scale: int, *, dynamic: bool) -> None:
    """Clean a traced model in place.

    Nystra nodes are named after their site, the free axes of input and output ``batch``,
    ``height`` and ``width``; traces of the source code and inner shapes are dropped; attributes
    stand in the order of their names.
    """
    for node in model.graph.node:
        if node.domain == DOMAIN:
            node.name = _site(node) or node.name
        del node.metadata_props[:]
        node.doc_string = ""
        ordered = sorted(node.attribute, key=lambda one: one.name)
        del node.attribute[:]
        node.attribute.extend(ordered)
    for value in [*model.graph.input, *model.graph.output, *model.graph.initializer]:
        del value.metadata_props[:]
        value.doc_string = ""
    del model.graph.value_info[:]
    del model.graph.metadata_props[:]
    del model.metadata_props[:]
    model.doc_string = model.graph.doc_string = ""
    model.graph.name = "nystra"
    if dynamic:
        _name_axes(model.graph.input, 1)
        _name_axes(model.graph.output, scale)


def _site(node: onnx.NodeProto) -> str:
    scopes = next((one.value for one in node.metadata_props if one.key == _SCOPES), "[]")
    named = [scope for scope in ast.literal_eval(scopes)[:-1] if scope]
    return named[-1] if named else ""


def _name_axes(values: Iterable[onnx.ValueInfoProto], scale: int) -> None:
    for value in values:
        for axis, name in _AXES.items():
            dimension = value.type.tensor_type.shape.dim[axis]
            factor = "" if scale == 1 or axis == 0 else f"{scale}*"
            dimension.Clear()
            dimension.dim_param = factor + name
