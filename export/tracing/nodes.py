"""Translations of torch ops for ``torch.onnx``: those of ``nystra``, and some that it lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import torch
from onnxscript import opset18 as op
from onnxscript.function_libs.torch_lib.ops.core import aten_remainder, aten_remainder_scalar
from onnxscript.values import Op, Opset

from ...plugins.domain import DOMAIN
from ...plugins.operators import OPERATORS, find_schema
from ...plugins.operators.schema import VERSION, OperatorSchema, node_attributes

_FLOAT_TYPES = ["tensor(float)", "tensor(float16)", "tensor(bfloat16)"]


def translation_table() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the translations of operators for ``torch.onnx.export``; nystra's are single nodes."""
    table: dict[Callable[..., Any], Callable[..., Any]] = {
        torch.ops.aten.copysign.Scalar: _copysign,
        torch.ops.aten.copysign.Tensor: _copysign,
        torch.ops.aten.remainder.Scalar: _remainder,
        torch.ops.aten.sort.stable: _sort,
    }
    for name, folder in OPERATORS.items():
        operator = getattr(torch.ops.nystra, folder, None)
        if operator is not None:  # otherwise its module was not imported: no graph holds it
            table[operator.default] = _emitter(find_schema(name), operator.default)
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
        remaining = {name: values[name] for name in rest}
        attributes = node_attributes(operator.name, **remaining)
        return emit(*(values[name] for name in tensors), **attributes)

    return translate


def _onnx_schema(operator: OperatorSchema) -> onnx.defs.OpSchema:
    attribute_types = onnx.defs.OpSchema.AttrType
    kinds = {"int": attribute_types.INT, "float": attribute_types.FLOAT}

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


def _copysign(tensor: Any, signs: Any) -> Any:
    """Translate the size of a tensor's numbers with the signs of others; -0 has a sign too."""
    sizes = op.Abs(tensor)
    typed = op.CastLike(signs, tensor)
    number: Any = op.Constant(value_float=0.0)
    zero = op.CastLike(number, tensor)
    below_zero = op.Less(typed, zero)
    minus_zero = op.Less(op.Reciprocal(typed), zero)
    is_negative = op.Or(below_zero, minus_zero)
    return op.Where(is_negative, op.Neg(sizes), sizes)


def _remainder(tensor: Any, divisor: Any) -> Any:
    """Translate a remainder whose divisor may be a size.

    A cyclic shift (``torch.roll``) of a map of any size is an index modulo its size.
    """
    if isinstance(divisor, (int, float)):
        return aten_remainder_scalar(tensor, divisor)
    return aten_remainder(tensor, op.CastLike(divisor, tensor))


def _sort(tensor: Any, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    """Translate a sort as TopK of all elements, which is stable: equal ones keep their order."""
    axis = dim % len(tensor.shape)
    length = op.Shape(tensor, start=axis, end=axis + 1)
    return op.TopK(tensor, length, axis=axis, largest=int(descending), sorted=1)
