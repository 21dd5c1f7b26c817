"""The networks of the table: published shapes, weights from a seed or as shipped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module

import torch
from torch import nn


@dataclass(frozen=True)
class Network:
    """A network that all engines run.

    Attributes:
        label: In the table.
        build: Returns it, in the code that is published or spandrel's copy of that.
        side: Of the square image.
        window: Side of its largest window of attention; None: it has no attention.
        shipped: The name by which nystra ships it, trained; weights of the others are drawn from
            a seed.
        hyper: What nystra has to be told because no tensor tells it.
    """

    label: str
    build: Callable[[], nn.Module]
    side: int = 128
    window: int | None = None
    shipped: str | None = None
    hyper: Mapping[str, object] = field(default_factory=dict)

    def module(self) -> nn.Module:
        """Return the network, with the same weights every time."""
        torch.manual_seed(0)
        built = self.build().eval()
        return built if self.shipped else lively(built)


def lively(network: nn.Module) -> nn.Module:
    """Return a network, changed in place, whose attention matters to what it gives."""
    for key, tensor in network.named_parameters():
        if any(part in key for part in ("bias_table", "qkv.weight")):
            nn.init.normal_(tensor, std=min(0.5, 4 / tensor.shape[-1]))
    return network


def _spandrel(name: str, **settings: object) -> nn.Module:
    module = import_module(f"spandrel.architectures.{name}")
    built: nn.Module = getattr(module, name)(**settings)
    return built


def _span() -> nn.Module:
    """Return SPAN, whose convolutions are summed once and not in every run, as one exports it."""
    network = _spandrel("SPAN", num_in_ch=3, num_out_ch=3).eval()
    for module in network.modules():
        if hasattr(module, "update_params"):
            module.update_params()
            module.update_params = _nothing  # type: ignore[assignment]
    return network


def _nothing() -> None:
    pass


def _own(name: str) -> nn.Module:
    from nystra.models import load

    return load(name).network


def _sst() -> nn.Module:
    from nystra.models.sst.network import SST

    return SST()


_SWIN = {"img_size": 64, "embed_dim": 60, "depths": [6] * 4, "num_heads": [6] * 4, "mlp_ratio": 2}
_LIGHT = {"window_size": 8, "upscale": 2, "upsampler": "pixelshuffledirect", **_SWIN}
_DEEP = {"img_size": 64, "depths": [6] * 6, "num_heads": [6] * 6, "mlp_ratio": 2}
_SHUFFLE = {"upsampler": "pixelshuffle", **_DEEP}

NETWORKS = {
    "swinir_m": Network(
        "SwinIR-M x2, windows of 8",
        partial(_spandrel, "SwinIR", embed_dim=180, window_size=8, upscale=2, **_SHUFFLE),
        window=8,
    ),
    "swinir_light": Network(
        "SwinIR light x2, windows of 8", partial(_spandrel, "SwinIR", **_LIGHT), window=8
    ),
    "swinir_w16": Network(
        "`swinir_x2_w16`, shipped",
        partial(_own, "swinir_x2_w16"),
        window=16,
        shipped="swinir_x2_w16",
    ),
    "swinir_w32": Network(
        "`swinir_x2_w32_nobias`, shipped",
        partial(_own, "swinir_x2_w32_nobias"),
        window=32,
        shipped="swinir_x2_w32_nobias",
    ),
    "sst_light": Network(
        "SST light x2, windows of 8 to 64",
        _sst,
        window=64,
        hyper={"window_sizes": (8, 16, 32, 16, 32, 64)},
    ),
    "hat_s": Network(
        "HAT-S x2, windows of 16",
        partial(
            _spandrel,
            "HAT",
            embed_dim=144,
            window_size=16,
            upscale=2,
            compress_ratio=24,
            squeeze_factor=24,
            **_SHUFFLE,
        ),
        side=64,
        window=16,
    ),
    "dat_light": Network(
        "DAT light x2, windows of 8x32",
        partial(
            _spandrel,
            "DAT",
            img_size=64,
            embed_dim=60,
            depth=[18],
            num_heads=[6],
            split_size=[8, 32],
            expansion_factor=2,
            upscale=2,
            upsampler="pixelshuffledirect",
        ),
        side=64,
        window=32,
    ),
    "drct": Network(
        "DRCT x4, windows of 16",
        partial(_spandrel, "DRCT", embed_dim=180, window_size=16, upscale=4, **_SHUFFLE),
        side=64,
        window=16,
    ),
    "swin2sr_light": Network(
        "Swin2SR light x2, windows of 8", partial(_spandrel, "Swin2SR", **_LIGHT), window=8
    ),
    "esrgan": Network("ESRGAN x4, convolutions", partial(_spandrel, "ESRGAN"), side=64),
    "span": Network("SPAN x4, convolutions", _span),
}
"""By name; the shapes are those of the published checkpoints."""
