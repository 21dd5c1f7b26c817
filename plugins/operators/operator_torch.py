"""An operator as one torch op, from its schema, its plain function and the kernels.

On float32 CPU tensors an op runs the native kernel if the library is built, so that calibrating and
validating a plan in eager PyTorch is as fast as the model file. On CUDA tensors of float32, float16
and bfloat16 it runs the CUDA kernel if that library was built with nvcc; otherwise there is a
warning. Everything else runs the plain function, in float32 for float16 and bfloat16.
``NYSTRA_TORCH_KERNELS=0`` always selects the plain function. The ops have no gradients; the plain
functions do.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ...core.errors import NystraError
from .. import native, native_cuda
from . import OPERATORS
from .schema import Attributes, OperatorSchema

__all__ = ["KERNELS_VARIABLE", "register"]

KERNELS_VARIABLE = "NYSTRA_TORCH_KERNELS"
"""The environment variable that turns the kernels off with 0."""

Tensors = Tensor | tuple[Tensor, ...]

Kernel = Callable[[OperatorSchema, Sequence[Tensor], Attributes, Sequence[Tensor]], bool]
"""Fills the results of a call (schema, inputs, checked attributes, results); False: it did not."""

_LOW = (torch.float16, torch.bfloat16)
_CUDA = (torch.float32, *_LOW)


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

    def run_with(kernel: Kernel, *arguments: Tensor | float) -> Tensors:
        allocated = outputs(*arguments)
        results = (allocated,) if isinstance(allocated, Tensor) else allocated
        if not results[0].numel():
            return allocated
        inputs = _inputs(schema, arguments[:count])
        checked = schema.validate(dict(zip(names, arguments[count:], strict=True)))
        if kernel(schema, inputs, checked, results):
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
    operator = torch.library.custom_op(
        f"nystra::{folder}",
        functools.partial(run_with, run_on_cpu),
        mutates_args=(),
        schema=signature,
    )
    operator.register_kernel("cuda", functools.partial(run_with, run_on_cuda))
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
        or not _wanted()
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


def run_on_cuda(
    schema: OperatorSchema, inputs: Sequence[Tensor], checked: Attributes, results: Sequence[Tensor]
) -> bool:
    """Enqueue the CUDA kernel on the current stream of the tensors' device.

    Returns:
        As `run_on_cpu`.

    Raises:
        NystraError: The tensors are on several devices.
        RuntimeError: CUDA did not launch the kernel.
    """
    device = inputs[0].device
    if any(tensor.device != device for tensor in inputs):
        raise NystraError(
            f"{schema.name}: the inputs are on {', '.join(str(t.device) for t in inputs)}; "
            "expected all on one device"
        )
    if inputs[0].dtype not in _CUDA or not _wanted():
        return False
    if reason := native_cuda.missing():
        _warn_once(f"CUDA tensors take the plain PyTorch functions, without kernels: {reason}")
        return False
    with torch.cuda.device(device):
        return launch(schema, inputs, checked, results, torch.cuda.current_stream().cuda_stream)


def launch(
    schema: OperatorSchema,
    inputs: Sequence[Tensor],
    checked: Attributes,
    results: Sequence[Tensor],
    stream: int,
) -> bool:
    """Enqueue the CUDA kernel on a stream of the current device.

    The workspace is torch's memory: it is released at once, and torch reuses it only for later work
    of the stream that was current at its allocation, which is that of the caller.

    Returns:
        As `run_on_cpu`.

    Raises:
        RuntimeError: CUDA did not launch the kernel.
    """
    kept = [tensor.detach().contiguous() for tensor in inputs]
    scratch: list[Tensor] = []

    def allocate(size: int) -> int:
        scratch.append(torch.empty(size, dtype=torch.uint8, device=kept[0].device))
        return scratch[0].data_ptr()

    try:
        native_cuda.run(
            schema.name,
            [_address(tensor) for tensor in kept],
            checked,
            [_address(tensor) for tensor in results],
            allocate,
            stream,
        )
    except NystraError:
        return False
    return True


def _address(tensor: Tensor) -> native_cuda.DeviceTensor:
    return tensor.data_ptr(), tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")


def _wanted() -> bool:
    return os.environ.get(KERNELS_VARIABLE) != "0"


@functools.cache
def _warn_once(text: str) -> None:
    warnings.warn(f"nystra: {text}", stacklevel=2)
