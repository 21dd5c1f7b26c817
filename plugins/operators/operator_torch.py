"""An operator as one torch op, from its schema, its plain function and the kernels.

On float32 CPU tensors an op runs the native kernel if the library is built, so that calibrating and
validating a plan in eager PyTorch is as fast as the model file. Everything else, CUDA tensors too,
runs the plain function, in float32 for float16 and bfloat16.
``NYSTRA_TORCH_KERNELS=0`` always selects the plain function. The ops have no gradients; the plain
functions do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...core.errors import NystraError
from .. import native
from . import OPERATORS
from .schema import Attributes, OperatorSchema

__all__ = ["KERNELS_VARIABLE", "register"]

KERNELS_VARIABLE = "NYSTRA_TORCH_KERNELS"
"""The environment variable that turns the kernels off with 0."""

Tensors = Tensor | tuple[Tensor, ...]

_LOW = (torch.float16, torch.bfloat16)


def register(
    schema: OperatorSchema, compute: Callable[..., Tensors], empty: Callable[..., Tensors]
) -> None:
    """Register ``torch.ops.nystra.<folder>``, which stays one node under ``torch.export``.

    Its arguments are the schema's inputs and then its attributes, in their order and without
    defaults, ``revision`` left out.

    Args:
        schema: Schema of the operator.
        compute: The plain function: the inputs by place, the attributes by name.
        empty: Allocates the outputs, not yet computed: the inputs by place, then the checked
            attributes as one mapping. Refuses invalid inputs; sizes may be symbolic.
    """
    folder = OPERATORS[schema.name]
    attributes = [attribute for attribute in schema.attributes if attribute.name != "revision"]
    count, names = len(schema.inputs), [attribute.name for attribute in attributes]
    kinds = {"int": "SymInt", "float": "float"}
    parameters = [f"Tensor {name}" for name in schema.inputs]
    parameters += [f"{kinds[attribute.kind]} {attribute.name}" for attribute in attributes]
    returns = ", ".join("Tensor" for _ in schema.outputs)

    def outputs(*arguments: Tensor | float) -> Tensors:
        inputs = _inputs(schema, arguments[:count])
        return empty(*inputs, schema.validate(dict(zip(names, arguments[count:], strict=True))))

    def run(*arguments: Tensor | float) -> Tensors:
        allocated = outputs(*arguments)
        results = (allocated,) if isinstance(allocated, Tensor) else allocated
        if not results[0].numel():
            return allocated
        inputs = _inputs(schema, arguments[:count])
        checked = schema.validate(dict(zip(names, arguments[count:], strict=True)))
        if run_on_cpu(schema, inputs, checked, results):
            return allocated
        del checked["revision"]
        wide = [tensor.float() if tensor.dtype in _LOW else tensor for tensor in inputs]
        computed = compute(*wide, **checked)
        for result, got in zip(
            results, (computed,) if isinstance(computed, Tensor) else computed, strict=True
        ):
            result.copy_(got)
        return allocated

    signature = f"({', '.join(parameters)}) -> " + (
        returns if len(schema.outputs) == 1 else f"({returns})"
    )
    operator = torch.library.custom_op(f"nystra::{folder}", run, mutates_args=(), schema=signature)
    operator.register_fake(outputs)


def _inputs(schema: OperatorSchema, arguments: Sequence[Tensor | float]) -> list[Tensor]:
    tensors = [value for value in arguments if isinstance(value, Tensor)]
    expected = [torch.int32 if name in schema.int32 else tensors[0].dtype for name in schema.inputs]
    if [tensor.dtype for tensor in tensors] != expected or not tensors[0].is_floating_point():
        got = ", ".join(
            f"{name} {tensor.dtype}" for name, tensor in zip(schema.inputs, tensors, strict=True)
        )
        also = f", and torch.int32 for {', '.join(schema.int32)}" if schema.int32 else ""
        raise NystraError(
            f"{schema.name}: the inputs are {got}; expected the same floating point type for "
            f"all{also}"
        )
    return tensors


def run_on_cpu(
    schema: OperatorSchema, inputs: Sequence[Tensor], checked: Attributes, results: Sequence[Tensor]
) -> bool:
    """Compute the results by the native kernel, on as many threads as torch would use.

    Returns:
        False if there is no kernel for these tensors, or if it refuses: errors were refused before,
        so that only sizes beyond its limits remain, which the plain function supports.
    """
    if (
        inputs[0].dtype != torch.float32
        or any(tensor.device.type != "cpu" for tensor in inputs)
        or os.environ.get(KERNELS_VARIABLE) == "0"
        or not native.available()
    ):
        return False
    places = iter(results)
    try:
        native.run(
            schema.name,
            [tensor.detach().numpy() for tensor in inputs],
            checked,
            torch.get_num_threads(),
            lambda shape, dtype: next(places).numpy(),
        )
    except NystraError:
        return False
    return True
