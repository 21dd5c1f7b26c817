"""Operators that move elements without changing them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .values import axes_of, numbers, within_bounds

_PAD_MODES = {"reflect": "reflect", "edge": "replicate"}


def _reshape(x: Tensor, shape: Tensor, allowzero: int = 0) -> Tensor:
    sizes = numbers(shape)
    if not allowzero:
        sizes = [x.shape[place] if size == 0 else size for place, size in enumerate(sizes)]
    return x.reshape(sizes)


def _transpose(x: Tensor, perm: Sequence[int] | None = None) -> Tensor:
    return x.permute(list(range(x.dim()))[::-1] if perm is None else list(perm))


def _flatten(x: Tensor, axis: int = 1) -> Tensor:
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _unsqueeze(x: Tensor, axes: Tensor) -> Tensor:
    for axis in sorted(axes_of(axes, x.dim() + len(numbers(axes)))):
        x = x.unsqueeze(axis)
    return x


def _squeeze(x: Tensor, axes: Tensor | None = None) -> Tensor:
    return x.squeeze() if axes is None else x.squeeze(axes_of(axes, x.dim()))


def _concat(*tensors: Tensor, axis: int) -> Tensor:
    joined = list(tensors[0].shape)
    joined[axis] = sum(tensor.shape[axis] for tensor in tensors)
    within_bounds(joined)
    return torch.cat(tensors, axis)


def _split(
    x: Tensor, split: Tensor | None = None, axis: int = 0, num_outputs: int | None = None
) -> tuple[Tensor, ...]:
    if split is not None:
        return tuple(x.split(numbers(split), axis))
    if num_outputs is None:
        raise ValueError("a Split without the number of its parts is not supported")
    return tuple(x.split(-(-x.shape[axis] // num_outputs), axis))


def _slice(
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    count = len(starts)
    places = axes_of(range(count) if axes is None else axes, x.dim())
    strides = [1] * count if steps is None else numbers(steps)
    for start, end, axis, step in zip(numbers(starts), numbers(ends), places, strides, strict=True):
        size = x.shape[axis]
        low, high = (0, size) if step > 0 else (-1, size - 1)
        first, last = (n + size if n < 0 else n for n in (start, end))
        first, last = max(first, max(low, 0)), max(last, low)
        first, last = min(first, high), min(last, high)
        if step > 0:
            x = x[(slice(None),) * axis + (slice(first, max(first, last), step),)]
        else:
            x = x.index_select(
                axis, torch.tensor(list(range(first, last, step)), dtype=torch.int64)
            )
    return x


def _positive(index: Tensor, size: int) -> Tensor:
    return torch.where(index < 0, index + size, index)


def _gather(x: Tensor, index: Tensor, axis: int = 0) -> Tensor:
    axis %= x.dim()
    within_bounds([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])
    if index.dim() == 0:
        return x.index_select(axis, _positive(index, x.shape[axis]).reshape(1)).squeeze(axis)
    taken = x.index_select(axis, _positive(index, x.shape[axis]).flatten())
    return taken.unflatten(axis, tuple(index.shape)) if index.dim() > 1 else taken


def _gather_elements(x: Tensor, index: Tensor, axis: int = 0) -> Tensor:
    return x.gather(axis, _positive(index, x.shape[axis]))


def _gather_nd(x: Tensor, index: Tensor, batch_dims: int = 0) -> Tensor:
    if batch_dims:
        raise ValueError("GatherND with batch_dims is not supported")
    return x[index.unbind(-1)]


def _scatter_nd(x: Tensor, index: Tensor, updates: Tensor, reduction: str = "none") -> Tensor:
    if reduction not in ("none", "add"):
        raise ValueError(f"ScatterND with reduction {reduction} is not supported")
    added = reduction == "add"
    return torch.index_put(x, index.unbind(-1), updates.to(x.dtype), accumulate=added)


def _scatter_elements(
    x: Tensor, index: Tensor, updates: Tensor, axis: int = 0, reduction: str = "none"
) -> Tensor:
    places = _positive(index, x.shape[axis])
    if reduction == "add":
        return x.scatter_add(axis, places, updates.to(x.dtype))
    if reduction != "none":
        raise ValueError(f"ScatterElements with reduction {reduction} is not supported")
    return x.scatter(axis, places, updates.to(x.dtype))


def _expand(x: Tensor, shape: Tensor) -> Tensor:
    sizes = numbers(shape)
    return x.expand(list(within_bounds(torch.broadcast_shapes(x.shape, sizes))))


def _tile(x: Tensor, repeats: Tensor) -> Tensor:
    counts = numbers(repeats)
    within_bounds([size * count for size, count in zip(x.shape, counts, strict=True)])
    return x.repeat(counts)


def _pad(
    x: Tensor,
    pads: Tensor,
    value: Tensor | None = None,
    axes: Tensor | None = None,
    mode: str = "constant",
) -> Tensor:
    places, amounts = axes_of(axes, x.dim()), numbers(pads)
    both = {axis: (amounts[i], amounts[i + len(places)]) for i, axis in enumerate(places)}
    within_bounds([size + sum(both.get(axis, ())) for axis, size in enumerate(x.shape)])
    flat = [amount for axis in reversed(range(x.dim())) for amount in both.get(axis, (0, 0))]
    if mode == "constant":
        return F.pad(x, flat, value=0.0 if value is None else value.item())
    if mode not in _PAD_MODES:
        raise ValueError(f"Pad with mode {mode} is not supported")
    while flat and flat[-1] == flat[-2] == 0:
        flat = flat[:-2]
    if len(flat) > 2 * (x.dim() - 1):
        raise ValueError("Pad of the first axis with mirrored or repeated values is not supported")
    if not flat:
        return x
    wide = x if x.dim() - len(flat) // 2 <= 2 else x.flatten(0, -len(flat) // 2 - 2)
    padded = F.pad(wide, flat, _PAD_MODES[mode])
    return padded.reshape([*x.shape[: x.dim() - len(flat) // 2], *padded.shape[-len(flat) // 2 :]])


def _depth_to_space(x: Tensor, blocksize: int, mode: str = "DCR") -> Tensor:
    if mode == "CRD":
        return F.pixel_shuffle(x, blocksize)
    batch, channels, height, width = x.shape
    left = channels // blocksize**2
    blocks = x.reshape(batch, blocksize, blocksize, left, height, width)
    moved = blocks.permute(0, 3, 4, 1, 5, 2)
    return moved.reshape(batch, left, height * blocksize, width * blocksize)


def _space_to_depth(x: Tensor, blocksize: int) -> Tensor:
    batch, channels, height, width = x.shape
    rows, columns = height // blocksize, width // blocksize
    blocks = x.reshape(batch, channels, rows, blocksize, columns, blocksize)
    moved = blocks.permute(0, 3, 5, 1, 2, 4)
    return moved.reshape(batch, channels * blocksize**2, rows, columns)


def _trilu(x: Tensor, k: Tensor | None = None, upper: int = 1) -> Tensor:
    diagonal = 0 if k is None else int(k)
    return torch.triu(x, diagonal) if upper else torch.tril(x, diagonal)


MOVEMENT: dict[str, Callable[..., Any]] = {
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Pad": _pad,
    "Reshape": _reshape,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
"""Operator of ONNX -> what computes it."""
