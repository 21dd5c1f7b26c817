"""Names a reader knows, and nothing that differs from one run to the next."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence

import onnx

from ...models.facts import ExtraInput
from ...plugins.operators.schema import DOMAIN

_SCOPES = "pkg.torch.onnx.name_scopes"
_AXES = {0: "batch", 2: "height", 3: "width"}


def tidy(
    model: onnx.ModelProto, scale: int, *, dynamic: bool, extra: Sequence[ExtraInput] = ()
) -> None:
    """Clean a traced model in place.

    Nystra nodes are named after their site (``#2``, ``#3`` where it is used again), the free axes
    of input and output ``batch``, ``height`` and ``width`` (``<name>_height`` and ``<name>_width``
    of an ``extra`` input with a size of its own); traces of the source code and inner shapes are
    dropped; attributes stand in the order of their names.
    """
    uses: Counter[str] = Counter()
    for node in model.graph.node:
        if node.domain == DOMAIN:
            site = _site(node) or node.name
            uses[site] += 1
            node.name = site if uses[site] == 1 else f"{site}#{uses[site]}"
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
        image, *others = model.graph.input
        _name_axes(image)
        for value, one in zip(others, extra, strict=True):
            _name_axes(value, prefix="" if one.same_size else f"{one.name}_")
        for value in model.graph.output:
            _name_axes(value, "" if scale == 1 else f"{scale}*")


def _site(node: onnx.NodeProto) -> str:
    scopes = next((one.value for one in node.metadata_props if one.key == _SCOPES), "[]")
    named = [scope for scope in ast.literal_eval(scopes)[:-1] if scope]
    return named[-1] if named else ""


def _name_axes(value: onnx.ValueInfoProto, factor: str = "", prefix: str = "") -> None:
    for axis, name in _AXES.items():
        dimension = value.type.tensor_type.shape.dim[axis]
        dimension.Clear()
        dimension.dim_param = name if axis == 0 else factor + prefix + name
