"""A window operator as one torch op, made of its schema and its plain function."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .schema import OperatorSchema
from .window_geometry import WindowGeometry
from .windows_torch import check_map

_LOW = (torch.float16, torch.bfloat16)


def register(folder: str, schema: OperatorSchema, compute: Callable[..., Tensor]) -> None:
    """Register ``torch.ops.nystra.<folder>``, which computes in float32 for float16 and bfloat16.

    Its arguments are the schema's inputs and then its attributes, in their order and without
    defaults, ``revision`` left out. It keeps one node under ``torch.export``, sizes symbolic.

    Args:
        folder: name of the torch op.
        schema: of a window operator: the first input is the map (B, H, W, h(2d+e)), the output
            (B, H, W, h e).
        compute: the plain function: the inputs by place, the attributes by name.
    """
    attributes = [one for one in schema.attributes if one.name != "revision"]
    count, names = len(schema.inputs), [one.name for one in attributes]
    kinds = {"int": "SymInt", "float": "float"}
    parameters = [f"Tensor {name}" for name in schema.inputs]
    parameters += [f"{kinds[one.kind]} {one.name}" for one in attributes]

    def empty(*given: Tensor | float) -> Tensor:
        values = dict(zip(names, given[count:], strict=True))
        return _empty_output(schema, given[0], values)  # type: ignore[arg-type]

    def run(*given: Tensor | float) -> Tensor:
        out = empty(*given)
        if not out.numel():
            return out
        wide = torch.float32 if out.dtype in _LOW else out.dtype
        tensors = [one.to(wide) for one in given[:count]]  # type: ignore[union-attr]
        return out.copy_(compute(*tensors, **dict(zip(names, given[count:], strict=True))))

    signature = f"({', '.join(parameters)}) -> Tensor"
    operator = torch.library.custom_op(f"nystra::{folder}", run, mutates_args=(), schema=signature)
    operator.register_fake(empty)


def _empty_output(schema: OperatorSchema, qkv: Tensor, attributes: dict[str, object]) -> Tensor:
    """Return the output, not yet computed.

    Raises:
        NystraError: the schema refuses the attributes, or the map does not fit them.
    """
    checked = schema.validate(attributes)
    heads, d, e, *window = (
        int(checked[name]) for name in ("heads", "head_dim", "value_dim", "window_h", "window_w")
    )
    geometry = WindowGeometry(heads, d, e, tuple(window), (0, 0))
    check_map(schema.name, qkv, geometry)
    return qkv.new_empty((*qkv.shape[:3], geometry.heads * geometry.value_dim))
