"""Functions of PyTorch that take a length as a number, written with tensors, which keep it free.

Each has the arguments, the values and the types of PyTorch's own of the same name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..torch_internals import shape_as_tensor, tree_leaves


def _count(length: Any, device: Any) -> Tensor:
    return torch.arange(length, dtype=torch.int64, device=device)


def _linspace(
    start: Any,
    end: Any,
    steps: Any,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    **_: Any,
) -> Tensor:
    """Return places from start to end, each half computed from its own end, as PyTorch does."""
    places = _count(steps, device)
    step = (end - start) / torch.sym_max(steps - 1, 1)
    kind = dtype or torch.get_default_dtype()
    first, last = start + places.to(kind) * step, end - (steps - 1 - places).to(kind) * step
    return torch.where(places < torch.sym_max(steps // 2, 1), first, last).to(kind)


def _logspace(start: Any, end: Any, steps: Any, base: Any = 10.0, **options: Any) -> Tensor:
    return torch.pow(base, _linspace(start, end, steps, **options))


def _fftfreq(n: Any, d: Any = 1.0, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    places = _count(n, device)
    signed = torch.where(places < (n + 1) // 2, places, places - n)
    frequencies: Tensor = signed.to(dtype or torch.get_default_dtype()) / (n * d)
    return frequencies


def _rfftfreq(n: Any, d: Any = 1.0, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    places = _count(n // 2 + 1, device).to(dtype or torch.get_default_dtype())
    frequencies: Tensor = places / (n * d)
    return frequencies


def _affine_grid(theta: Tensor, size: Sequence[Any], align_corners: bool | None = None) -> Tensor:
    """Return the grid (B, [D,] H, W, 2 or 3) of maps (B, d, d + 1) from an output to its input."""
    lengths = size[2:]
    axes = []
    for length in lengths:
        steps = torch.sym_max(length - 1, 1) if align_corners else length
        centred = 2 * _count(length, theta.device) - (length - 1)
        axes.append(centred.to(theta.dtype) / steps)
    places = torch.meshgrid(*axes, indexing="ij")
    homogeneous = torch.stack([*places[::-1], torch.ones_like(places[0])], -1).flatten(0, -2)
    grid: Tensor = (homogeneous @ theta.transpose(1, 2)).unflatten(1, tuple(lengths))
    return grid


def _hann_window(length: Any, periodic: bool = True, **options: Any) -> Tensor:
    return _cosine_window(length, periodic, 0.5, **options)


def _hamming_window(length: Any, periodic: bool = True, alpha: float = 0.54, **more: Any) -> Tensor:
    return _cosine_window(length, periodic, alpha, **more)


def _cosine_window(
    length: Any, periodic: bool, alpha: float, *, dtype: Any = None, device: Any = None, **_: Any
) -> Tensor:
    """Return alpha - (1 - alpha) cos(2 pi i / n) for the places i of a window."""
    period = length if periodic else torch.sym_max(length - 1, 1)
    turns = _count(length, device).to(dtype or torch.get_default_dtype()) / period
    window: Tensor = alpha - (1 - alpha) * torch.cos(2 * math.pi * turns)
    return torch.where(torch.full((), length) == 1, 1.0, window)


def _shape_as_tensor(tensor: Tensor) -> Tensor:
    return torch.stack([torch.full((), length, dtype=torch.int64) for length in tensor.shape])


FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    torch.linspace: _linspace,
    torch.logspace: _logspace,
    torch.fft.fftfreq: _fftfreq,
    torch.fft.rfftfreq: _rfftfreq,
    torch.hann_window: _hann_window,
    torch.hamming_window: _hamming_window,
    F.affine_grid: _affine_grid,
    shape_as_tensor: _shape_as_tensor,
}


def of_free_sizes(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return what computes a function: another one where an argument is a size without a value."""
    other = FUNCTIONS.get(function)
    leaves = () if other is None else tree_leaves((args, kwargs))
    is_free = other is _shape_as_tensor or any(isinstance(each, torch.SymInt) for each in leaves)
    return other if other is not None and is_free else function
