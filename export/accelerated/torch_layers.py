"""How PyTorch computes the layers of ONNX: convolutions, pooling, products, norms, resizing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Attributes = Mapping[str, Any]
"""Attributes of a node by name."""


def _window(attributes: Attributes, x: Tensor, value: float) -> tuple[Tensor, dict[str, Any]]:
    """Return the padded input of a sliding window, and its stride and padding."""
    only(attributes, auto_pad="NOTSET")
    rank = x.dim() - 2
    pads = [*attributes.get("pads", [0] * 2 * rank)]
    settings = {"stride": [*attributes.get("strides", [1] * rank)], "padding": pads[:rank]}
    if pads[:rank] == pads[rank:]:
        return x, settings
    turned = [n for axis in reversed(range(rank)) for n in (pads[axis], pads[rank + axis])]
    return F.pad(x, turned, value=value), settings | {"padding": [0] * rank}


def convolution(
    attributes: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Any:
    """Return the result of ``Conv``."""
    x, settings = _window(attributes, x, 0.0)
    rank = x.dim() - 2
    dilation = [*attributes.get("dilations", [1] * rank)]
    function = (torch.conv1d, torch.conv2d, torch.conv3d)[rank - 1]
    groups = attributes.get("group", 1)
    return function(x, weight, bias, dilation=dilation, groups=groups, **settings)


def transposed_convolution(
    attributes: Attributes, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Any:
    """Return the result of ``ConvTranspose``."""
    only(attributes, auto_pad="NOTSET", output_shape=None)
    rank = x.dim() - 2
    pads = [*attributes.get("pads", [0] * 2 * rank)]
    if pads[:rank] != pads[rank:]:
        raise NotImplementedError("ConvTranspose with different padding at both ends")
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
    return function(
        x,
        weight,
        bias,
        attributes.get("strides", [1] * rank),
        pads[:rank],
        attributes.get("output_padding", [0] * rank),
        attributes.get("group", 1),
        attributes.get("dilations", [1] * rank),
    )


def pooling(attributes: Attributes, x: Tensor, *, largest: bool) -> Tensor:
    """Return the result of ``MaxPool``, or else of ``AveragePool``."""
    size, ceil = attributes["kernel_shape"], bool(attributes.get("ceil_mode", 0))
    if largest:
        x, settings = _window(attributes, x, -math.inf)
        settings["dilation"] = attributes.get("dilations", [1] * len(size))
        made: Tensor = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(size) - 1](
            x, size, ceil_mode=ceil, **settings
        )
        return made
    only(attributes, auto_pad="NOTSET", dilations=[1] * len(size))
    pads = [*attributes.get("pads", [0] * 2 * len(size))]
    if pads[: len(size)] != pads[len(size) :]:
        raise NotImplementedError("AveragePool with different padding at both ends")
    function = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[len(size) - 1]
    counted = bool(attributes.get("count_include_pad", 0))
    strides = attributes.get("strides", [1] * len(size))
    return function(x, size, strides, pads[: len(size)], ceil, counted)


def gemm(attributes: Attributes, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """Return the result of ``Gemm``."""
    a = a.t() if attributes.get("transA") else a
    b = b.t() if attributes.get("transB") else b
    product: Tensor = attributes.get("alpha", 1.0) * (a @ b)
    return product if c is None else product + attributes.get("beta", 1.0) * c


def layer_norm(attributes: Attributes, x: Tensor, scale: Tensor, bias: Any = None) -> Tensor:
    """Return the result of ``LayerNormalization``."""
    sizes = x.shape[attributes.get("axis", -1) :]
    return F.layer_norm(x, sizes, scale, bias, attributes.get("epsilon", 1e-5))


def batch_norm(
    attributes: Attributes, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> Tensor:
    """Return the result of ``BatchNormalization`` by the given mean and variance."""
    only(attributes, training_mode=0)
    return F.batch_norm(x, mean, var, scale, bias, eps=attributes.get("epsilon", 1e-5))


def resize(
    attributes: Attributes,
    x: Tensor,
    region: Any = None,
    scales: Sequence[float] | None = None,
    sizes: Sequence[int] | None = None,
) -> Tensor:
    """Return the result of ``Resize``.

    Raises:
        NotImplementedError: PyTorch computes something else.
    """
    only(attributes, axes=None, keep_aspect_ratio_policy="stretch", exclude_outside=0, antialias=0)
    mode = attributes.get("mode", "nearest")
    where = attributes.get("coordinate_transformation_mode", "half_pixel")
    if mode == "nearest":
        return _nearest(attributes, x, scales, sizes)
    if where not in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        raise NotImplementedError(f"Resize {mode}, {where}")
    kind = "bicubic" if mode == "cubic" else {3: "linear", 4: "bilinear", 5: "trilinear"}[x.dim()]
    if kind == "bicubic" and abs(attributes.get("cubic_coeff_a", -0.75) + 0.75) > 1e-6:
        raise NotImplementedError("Resize with other cubic coefficients than those of PyTorch")
    if where == "pytorch_half_pixel" and (not sizes or 1 in sizes[2:]):
        raise NotImplementedError("Resize, pytorch_half_pixel, to a side of 1")
    if where == "align_corners" and not sizes:
        raise NotImplementedError("Resize, align_corners, with scales")  # of no whole length
    given: dict[str, Any] = {"size": sizes[2:]} if sizes else {"scale_factor": (scales or ())[2:]}
    return F.interpolate(x, mode=kind, align_corners=where == "align_corners", **given)


def _nearest(
    attributes: Attributes,
    x: Tensor,
    scales: Sequence[float] | None,
    sizes: Sequence[int] | None,
) -> Tensor:
    where = attributes.get("coordinate_transformation_mode", "half_pixel")
    rounding: Callable[[Tensor], Tensor] = {
        "floor": torch.floor,
        "ceil": torch.ceil,
        "round_prefer_floor": lambda at: torch.ceil(at - 0.5),
        "round_prefer_ceil": lambda at: torch.floor(at + 0.5),
    }[attributes.get("nearest_mode", "round_prefer_floor")]
    if where not in ("half_pixel", "asymmetric"):
        raise NotImplementedError(f"Resize nearest, {where}")
    for axis, length in enumerate(x.shape):
        scale = sizes[axis] / length if sizes else (scales or [1.0] * x.dim())[axis]
        count = sizes[axis] if sizes else math.floor(length * scale)
        at = torch.arange(count, dtype=torch.float64, device=x.device)
        at = (at + 0.5) / scale - 0.5 if where == "half_pixel" else at / scale
        if count != length:
            x = x.index_select(axis, rounding(at).clamp(0, length - 1).long())
    return x


def only(attributes: Attributes, **usual: Any) -> None:
    """Raise NotImplementedError if an attribute has another value than the usual one."""
    for name, value in usual.items():
        given = attributes.get(name, value)
        if (list(given) if isinstance(given, tuple) else given) != value:
            raise NotImplementedError(f"{name} {given!r:.40}")
