"""Networks of other libraries, and the ONNX files of PyTorch's two exporters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Plain:
    """A network for plain exports.

    Attributes:
        library: That has it.
        build: Returns it.
        side: Of the image that it is exported with.
        sites: How many attentions nodes of nystra can stand for.
        kind: What these are: of a ``map`` or of ``tokens``.
        fixed_only: It takes one size.
    """

    library: str
    build: Callable[[], nn.Module]
    side: int
    sites: int
    kind: str = "map"
    fixed_only: bool = False


def _restorer(name: str, **settings: Any) -> nn.Module:
    module = import_module(f"spandrel.architectures.{name}")
    shared = {"img_size": 16, "embed_dim": 24, "num_heads": [2], "upscale": 2}
    built: nn.Module = getattr(module, name)(**shared | settings)
    return built


def _swin(**settings: Any) -> nn.Module:
    module = import_module("torchvision.models.swin_transformer")
    shared = {"patch_size": [4, 4], "window_size": [7, 7]}
    built: nn.Module = module.SwinTransformer(**shared | settings)
    return built


def _vit(**settings: Any) -> nn.Module:
    module = import_module("torchvision.models.vision_transformer")
    built: nn.Module = module.VisionTransformer(patch_size=16, **settings)
    return built


_WINDOWS = {"depths": [2], "window_size": 8}
_DIRECT = {"upsampler": "pixelshuffledirect"}

SMALL = {
    "SwinIR": Plain("spandrel", partial(_restorer, "SwinIR", **_WINDOWS, **_DIRECT), 32, 2),
    "HAT": Plain(
        "spandrel",
        partial(
            _restorer,
            "HAT",
            **_WINDOWS,
            upsampler="pixelshuffle",
            compress_ratio=3,
            squeeze_factor=4,
            num_feat=16,
        ),
        32,
        3,
    ),
    "Swin2SR": Plain("spandrel", partial(_restorer, "Swin2SR", **_WINDOWS, **_DIRECT), 32, 2),
    "DAT": Plain(
        "spandrel",
        partial(
            _restorer,
            "DAT",
            **_DIRECT,
            embed_dim=64,
            expansion_factor=2,
            depth=[2],
            split_size=[4, 8],
        ),
        32,
        2,
    ),
    "swin_t": Plain(
        "torchvision",
        partial(_swin, embed_dim=24, depths=[2, 2], num_heads=[2, 4], num_classes=10),
        56,
        4,
    ),
    "vit_b_16": Plain(
        "torchvision",
        partial(
            _vit,
            image_size=64,
            num_layers=2,
            num_heads=2,
            hidden_dim=32,
            mlp_dim=64,
            num_classes=10,
        ),
        64,
        2,
        kind="tokens",
        fixed_only=True,
    ),
}
"""Small networks of six families, by the name of the published one."""

PUBLISHED = {
    "SwinIR": Plain(
        "spandrel",
        partial(
            _restorer,
            "SwinIR",
            **_DIRECT,
            img_size=64,
            depths=[6] * 4,
            num_heads=[6] * 4,
            embed_dim=60,
            window_size=8,
        ),
        64,
        24,
    ),
    "DAT": Plain(
        "spandrel",
        partial(
            _restorer,
            "DAT",
            **_DIRECT,
            img_size=64,
            embed_dim=60,
            num_heads=[6],
            expansion_factor=2,
            depth=[18],
            split_size=[8, 32],
        ),
        64,
        18,
    ),
    "swin_t": Plain(
        "torchvision",
        partial(_swin, embed_dim=96, depths=[2, 2, 6, 2], num_heads=[3, 6, 12, 24]),
        224,
        12,
    ),
    "vit_b_16": Plain(
        "torchvision",
        partial(_vit, image_size=224, num_layers=12, num_heads=12, hidden_dim=768, mlp_dim=3072),
        224,
        12,
        kind="tokens",
        fixed_only=True,
    ),
}
"""The same at published sizes."""


def lively(network: nn.Module) -> nn.Module:
    """Return a network in which attention affects the output."""
    for key, tensor in network.named_parameters():
        if any(part in key for part in ("table", "qkv", "in_proj_weight")):
            nn.init.normal_(tensor, std=min(0.5, 4 / tensor.shape[-1]) if tensor.dim() > 1 else 0.5)
        elif not bool(tensor.any()):  # the last layer of torchvision's classifiers
            nn.init.normal_(tensor, std=0.1)
    return network.eval()


def write_plain(plain: Plain, exporter: str, opset: int, sizes: str, path: Path) -> Path:
    """Write a network with one of PyTorch's exporters; return the path.

    Args:
        plain: Weights are drawn from a seed.
        exporter: ``script`` or ``dynamo``.
        opset: Of ONNX.
        sizes: ``fixed``, ``free`` (height and width) or ``batch`` (the number of images).
        path: Of the file.
    """
    torch.manual_seed(0)
    network = lively(plain.build())
    image = torch.rand(2 if sizes == "batch" else 1, 3, plain.side, plain.side)
    with torch.no_grad():
        images = network(image).dim() == 4
    more: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"], "opset_version": opset}
    axes = {"fixed": (), "free": (2, 3), "batch": (0,)}[sizes]
    if exporter == "dynamo":
        free = dict.fromkeys(axes, torch.export.Dim.DYNAMIC)
        more |= {"dynamo": True, "dynamic_shapes": (free,) if axes else None}
        more |= {"external_data": False}
    else:
        given = axes if images or sizes == "batch" else ()
        more |= {
            "dynamo": False,
            "dynamic_axes": {
                "x": {axis: f"x{axis}" for axis in axes},
                "y": {axis: f"y{axis}" for axis in given},
            },
        }
    torch.onnx.export(network, (image,), path, verbose=False, **more)
    return path
