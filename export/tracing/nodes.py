"""Translates a torch op of the namespace ``nystra`` to a node of the ONNX domain ``nystra``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import onnx
import torch
from onnxscript.values import Op, Opset

from ...plugins.domain import DOMAIN
from ...plugins.operators import OPERATORS, find_schema
from ...plugins.operators.schema import VERSION, OperatorSchema, node_attributes

_FLOAT_TYPES = ["tensor(float)", "tensor(float16)", "tensor(bfloat16)"]


def translation_table() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the translations of nystra operators to single nodes for ``torch.onnx.export``."""
    table: dict[Callable[..., Any], Callable[..., Any]] = {}
    for name, folder in OPERATORS.items():
        importlib.import_module(f"...plugins.operators.{folder}.torch_op", __package__)
        overload = getattr(torch.ops.nystra, folder).default
        table[overload] = _emitter(find_schema(name), overload)
    return table


def _emitter(operator: OperatorSchema, overload: Any) -> Callable[..., Any]:
    emit = Op(Opset(DOMAIN, VERSION), operator.name, _onnx_schema(operator))
    arguments = overload._schema.arguments
    tensors = [
        argument.name for argument in arguments if isinstance(argument.type, torch.TensorType)
    ]
    rest = [argument.name for argument in arguments if argument.name not in tensors]
    names = [argument.name for argument in arguments]

    def translate(*args: Any, **kwargs: Any) -> Any:
        values = dict(zip(names, args, strict=False)) | kwargs
        attributes = node_attributes(operator.name, **{name: values[name] for name in rest})
        return emit(*(values[name] for name in tensors), **attributes)

    return translate


def _onnx_schema(operator: OperatorSchema) -> onnx.defs.OpSchema:
    kinds = {"int": onnx.defs.OpSchema.AttrType.INT, "float": onnx.defs.OpSchema.AttrType.FLOAT}

    def formal(name: str) -> onnx.defs.OpSchema.FormalParameter:
        kind = "tensor(int32)" if name in operator.int32 else "T"
        return onnx.defs.OpSchema.FormalParameter(name, kind)

    attributes = [
        onnx.defs.OpSchema.Attribute(attribute.name, kinds[attribute.kind], attribute.doc)
        for attribute in operator.attributes
    ]
    attributes += [
        onnx.defs.OpSchema.Attribute(name, onnx.defs.OpSchema.AttrType.STRING, "")
        for name in ("plugin_version", "plugin_namespace")
    ]
    return onnx.defs.OpSchema(
        operator.name,
        DOMAIN,
        VERSION,
        operator.doc,
        inputs=[formal(name) for name in operator.inputs],
        outputs=[formal(name) for name in operator.outputs],
        type_constraints=[("T", _FLOAT_TYPES, "")],
        attributes=attributes,
    )
