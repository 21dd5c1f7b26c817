"""Operators that compute every element of their result from one element of each input."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor

from .values import broadcast_shape

Function = Callable[..., Tensor]


def _bounded(function: Function) -> Function:
    """Return a function of several tensors that refuses results too large to compute."""

    def computed(*tensors: Tensor) -> Tensor:
        broadcast_shape(*tensors)
        return function(*tensors)

    return computed


def _folded(function: Function) -> Function:
    """Return a function of any number of tensors."""

    def computed(*tensors: Tensor) -> Tensor:
        broadcast_shape(*tensors)
        return reduce(function, tensors)

    return computed


def _divided(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b, rounding_mode=None if a.is_floating_point() else "trunc")


def _power(base: Tensor, exponent: Tensor) -> Tensor:
    return torch.pow(base, exponent).to(base.dtype)


def _modulus(a: Tensor, b: Tensor, fmod: int = 0) -> Tensor:
    broadcast_shape(a, b)
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


def _mean(*tensors: Tensor) -> Tensor:
    return _folded(torch.add)(*tensors) / len(tensors)


def _clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    if low is not None:
        x = torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


def _prelu(x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x > 0, x, x * slope)


def _leaky_relu(x: Tensor, alpha: float = 0.01) -> Tensor:
    return F.leaky_relu(x, alpha)


def _elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return F.elu(x, alpha)


def _hard_sigmoid(x: Tensor, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return torch.clamp(alpha * x + beta, 0, 1)


def _gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return F.gelu(x, approximate=approximate)


def _dropout(x: Tensor, *_: Tensor, seed: int = 0) -> Tensor:
    """Return the input: a file runs in inference mode."""
    return x


def _identity(x: Tensor) -> Tensor:
    return x


ELEMENTWISE: dict[str, Function] = {
    "Abs": torch.abs,
    "Add": _bounded(torch.add),
    "And": _bounded(torch.logical_and),
    "Ceil": torch.ceil,
    "Clip": _clip,
    "Cos": torch.cos,
    "Div": _bounded(_divided),
    "Dropout": _dropout,
    "Elu": _elu,
    "Equal": _bounded(torch.eq),
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "Gelu": _gelu,
    "Greater": _bounded(torch.gt),
    "GreaterOrEqual": _bounded(torch.ge),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": F.hardswish,
    "Identity": _identity,
    "IsNaN": torch.isnan,
    "LeakyRelu": _leaky_relu,
    "Less": _bounded(torch.lt),
    "LessOrEqual": _bounded(torch.le),
    "Log": torch.log,
    "Max": _folded(torch.maximum),
    "Mean": _mean,
    "Min": _folded(torch.minimum),
    "Mish": F.mish,
    "Mod": _modulus,
    "Mul": _bounded(torch.mul),
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Or": _bounded(torch.logical_or),
    "PRelu": _bounded(_prelu),
    "Pow": _bounded(_power),
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Round": torch.round,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Softplus": F.softplus,
    "Sqrt": torch.sqrt,
    "Sub": _bounded(torch.sub),
    "Sum": _folded(torch.add),
    "Tanh": torch.tanh,
    "Where": _bounded(torch.where),
    "Xor": _bounded(torch.logical_xor),
}
"""Operator of ONNX -> what computes it."""
