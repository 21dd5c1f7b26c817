"""``Resize``: nearest by numbers of rows and columns, linear and cubic as PyTorch computes them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .values import axes_of, numbers, within_bounds

_ROUNDED = {
    "round_prefer_floor": lambda place: math.ceil(place - 0.5),
    "round_prefer_ceil": lambda place: math.floor(place + 0.5),
    "floor": math.floor,
    "ceil": math.ceil,
}


def resize(
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    """Return x at other sides.

    Raises:
        ValueError: In a way that is not read; the message names it.
    """
    places = axes_of(axes, x.dim())
    wanted, factors = list(x.shape), [1.0] * x.dim()
    if sizes is not None and sizes.numel():
        for axis, size in zip(places, numbers(sizes), strict=True):
            wanted[axis], factors[axis] = size, size / x.shape[axis]
    elif scales is not None:
        for axis, factor in zip(places, scales.tolist(), strict=True):
            wanted[axis], factors[axis] = math.floor(x.shape[axis] * factor), factor
    within_bounds(wanted)
    if keep_aspect_ratio_policy != "stretch" or antialias:
        raise ValueError("a Resize with antialias or keep_aspect_ratio_policy is not supported")
    if mode == "nearest":
        for axis, (size, factor) in enumerate(zip(wanted, factors, strict=True)):
            if size != x.shape[axis]:
                picked = _nearest(
                    x.shape[axis], size, factor, coordinate_transformation_mode, nearest_mode
                )
                x = x.index_select(axis, torch.tensor(picked, dtype=torch.int64))
        return x
    pixels = coordinate_transformation_mode
    corners = pixels == "align_corners"
    alike = corners or pixels in ("half_pixel", "pytorch_half_pixel")
    cubic = mode == "cubic" and cubic_coeff_a == -0.75 and not exclude_outside
    if not (
        alike and (mode == "linear" or cubic) and x.dim() == 4 and wanted[:2] == [*x.shape[:2]]
    ):
        raise ValueError(
            f"a Resize with mode {mode} and {pixels} of rank {x.dim()} is not supported"
        )
    how = "bilinear" if mode == "linear" else "bicubic"
    if corners or (sizes is not None and sizes.numel()):
        return F.interpolate(x, wanted[2:], mode=how, align_corners=corners)
    return F.interpolate(x, scale_factor=factors[2:], mode=how, align_corners=False)


def _nearest(before: int, after: int, factor: float, pixels: str, rounding: str) -> list[int]:
    """Return which row of so many each row of the result is."""
    if rounding not in _ROUNDED:
        raise ValueError(f"a Resize with nearest_mode {rounding} is not supported")
    places: list[float]
    if pixels == "asymmetric":
        places = [row / factor for row in range(after)]
    elif pixels == "align_corners":
        places = [row * (before - 1) / max(after - 1, 1) for row in range(after)]
    elif pixels in ("half_pixel", "pytorch_half_pixel"):
        alone = pixels == "pytorch_half_pixel" and after == 1
        places = [0.0 if alone else (row + 0.5) / factor - 0.5 for row in range(after)]
    else:
        raise ValueError(f"a Resize with coordinate_transformation_mode {pixels} is not supported")
    return [min(max(_ROUNDED[rounding](place), 0), before - 1) for place in places]
