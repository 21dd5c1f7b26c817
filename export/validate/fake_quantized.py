"""The fake-quantized network, from which the tolerances of a low precision are measured.

That is the plain PyTorch network in which every layer with weights (convolution, linear)
gets its input, weight and output rounded to the digits of the type, and every window site its
position bias; the rest is float32. For a bf16 file without ``target tensorrt`` only linear layers
are rounded: ONNX has no bfloat16 convolution below opset 22, and onnxruntime no bfloat16 attention.
It knows nothing of the file or of the pass that wrote it, so neither can widen its own tolerance.
Rounding keeps float32's exponent: it never overflows and never loses small numbers, so that
overflow in a file is never tolerated.

For int8 a layer's weight is rounded to 127 steps of the largest of an output channel, its input to
127 steps of the largest of that very map: there is no calibration, so that a badly chosen range is
not tolerated either. Layers that the export returned to float32 stay exact here too.

``torch.autocast("cpu")`` would be the alternative, but measurements showed that it does not
suffice: it computes the products inside attention, those of the pseudoinverse included, and
normalization and the residual stream in the low type. Its error is many times that of a correct
file, and a tolerance of twice that would let wrong files pass.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from ...models.architecture import PrecisionPolicy
from ...models.sites import WindowSite
from ..graph.policies import find_int8_policy, find_precision_policy
from ..graph.precision.table import LOW_TYPES
from ..rewrite.graph_network import GraphNetwork
from ..rounding.layers import Rounding

_FLOAT32_DIGITS = 24
_LAYERS = (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)
_OPERATORS: dict[type[nn.Module], tuple[str, ...]] = {
    nn.Conv2d: ("Conv",),
    nn.ConvTranspose2d: ("ConvTranspose",),
    nn.Linear: ("MatMul", "Gemm"),
}
_FOR_EVERY_PROGRAM = {"bf16": (nn.Linear,)}


def round_digits(values: Tensor, digits: int) -> Tensor:
    """Return values rounded to binary digits, ties to even, with the exponents of float32."""
    if values.dtype != torch.float32:
        return round_digits(values.float(), digits).to(values.dtype)
    drop = _FLOAT32_DIGITS - digits
    bits = values.contiguous().view(torch.int32)
    half = (1 << (drop - 1)) - 1
    rounded = bits + half + ((bits >> drop) & 1)
    return (rounded & -(1 << drop)).view(torch.float32)


def round_as_file(
    precision: str,
    target: str | None,
    network: nn.Module,
    architecture: str,
    *_: object,
) -> nn.Module:
    """Return a copy of a network that rounds like a file of a precision and a target."""
    label = precision if target is None else f"{precision}-{target}"
    return round_network(network, label, find_precision_policy(architecture, precision))


def quantize_as_file(
    network: nn.Module, architecture: str, exact: Collection[str], _: object
) -> nn.Module:
    """Return a copy of a network that rounds to 8 bits, but for modules left ``exact``."""
    return quantize_network(network, find_int8_policy(architecture), exact)


def round_network(
    network: nn.Module, precision: str, policy: PrecisionPolicy | None = None
) -> nn.Module:
    """Return a copy of a plain float32 network whose layers round to a precision.

    Args:
        network: Left as it is.
        precision: ``fp16``, ``bf16`` or ``bf16-tensorrt``.
        policy: The policy of the architecture: modules that stay float32 in the file do so here.
    """
    policy = policy or PrecisionPolicy()
    digits = LOW_TYPES[precision.partition("-")[0]].digits
    layers = _FOR_EVERY_PROGRAM.get(precision, _LAYERS)
    site = WindowSite if layers is _LAYERS else ()
    copied = copy.deepcopy(network)
    if isinstance(copied, GraphNetwork):
        operators = {name for kind in layers for name in _OPERATORS[kind]}
        rounding = Rounding(operators, lambda path: policy.exact(path) is not None, digits)
        copied.round_layers(rounding)

    def before(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(round_digits(argument, digits) for argument in arguments)

    def after(_: nn.Module, __: tuple[Any, ...], output: Tensor) -> Tensor:
        return round_digits(output, digits)

    for path, module in copied.named_modules():
        if policy.exact(path) is not None:
            continue
        if isinstance(module, layers):
            module.weight.data = round_digits(module.weight.data, digits)
            module.register_forward_pre_hook(before)
            module.register_forward_hook(after)
        elif isinstance(module, site):
            tables = (module.relative_position_bias_table, getattr(module, "logit_scale", None))
            for table in (table for table in tables if table is not None):
                table.data = round_digits(table.data, digits)
    return copied


def quantize_network(
    network: nn.Module, policy: PrecisionPolicy, exact: Collection[str] = ()
) -> nn.Module:
    """Return a copy of a plain float32 network whose layers round to 8 bits.

    Args:
        network: Left as it is.
        policy: The policy of the architecture.
        exact: Further modules that stay float32.
    """
    copied = copy.deepcopy(network)
    if isinstance(copied, GraphNetwork):
        operators = {*_OPERATORS[nn.Conv2d], *_OPERATORS[nn.Linear]}
        copied.round_layers(
            Rounding(operators, lambda path: policy.exact(path) is not None or path in exact)
        )

    def before(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(_in_steps(argument, argument.abs().max()) for argument in arguments)

    for path, module in copied.named_modules():
        if not isinstance(module, (nn.Conv2d, nn.Linear)):
            continue
        if policy.exact(path) is None and path not in exact:
            weight = module.weight.data
            others = tuple(range(1, weight.dim()))
            largest = weight.abs().amax(others, keepdim=True)
            module.weight.data = _in_steps(weight, largest)
            module.register_forward_pre_hook(before)
    return copied


def _in_steps(values: Tensor, largest: Tensor) -> Tensor:
    """Return values rounded to 127 steps of the largest, ties to even."""
    step = (largest / 127.0).clamp_min(torch.finfo(values.dtype).tiny)
    return torch.round(values / step) * step
