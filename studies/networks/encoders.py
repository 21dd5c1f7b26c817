"""Encoders of transformers, small, between an image and an image."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

Features = Callable[[nn.Module, Tensor], Tensor]

_MODELS = "transformers.models."
_SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3}


class Swin2SR(nn.Module):
    """The image of transformers' Swin2SR."""

    def __init__(self) -> None:
        super().__init__()
        package = importlib.import_module("transformers")
        settings = {"embed_dim": 24, "depths": [2], "num_heads": [2], "image_size": 32}
        self.network = package.Swin2SRForImageSuperResolution(package.Swin2SRConfig(**settings))

    def forward(self, x: Tensor) -> Tensor:
        """Return the image."""
        image: Tensor = self.network(x).reconstruction
        return image


class Encoder(nn.Module):
    """An encoder whose map of features is written back into the pixels of its image.

    Args:
        network: The encoder.
        channels: C of its map.
        stride: s, the pixels of an image along a side of a cell of the map.
        features: Returns the map (B, C, H / s, W / s) of the encoder and an image (B, 3, H, W).
    """

    def __init__(self, network: nn.Module, channels: int, stride: int, features: Features) -> None:
        super().__init__()
        self.network, self.features = network, features
        self.last = nn.Sequential(nn.Conv2d(channels, 3 * stride**2, 1), nn.PixelShuffle(stride))

    def forward(self, x: Tensor) -> Tensor:
        """Return an image (B, 3, H, W)."""
        image: Tensor = x + self.last(self.features(self.network, x))
        return image


def dinov3() -> nn.Module:
    """Return DINOv3, whose rotary positions are those of any size."""
    sizes = {"intermediate_size": 96, "image_size": 64, "patch_size": 8, "num_register_tokens": 4}
    network = _built("dinov3_vit", "DINOv3ViTModel", "DINOv3ViTConfig", **_SMALL, **sizes)

    def features(network: nn.Module, x: Tensor) -> Tensor:
        return _map_of(network(x).last_hidden_state[:, 5:], x, 8)

    return Encoder(network, 48, 8, features)


def siglip() -> nn.Module:
    """Return the vision encoder of SigLIP, whose table of positions is resized to the map."""
    sizes = {"intermediate_size": 96, "image_size": 64, "patch_size": 8}
    network = _built("siglip", "SiglipVisionModel", "SiglipVisionConfig", **_SMALL, **sizes)

    def features(network: nn.Module, x: Tensor) -> Tensor:
        tokens = network(x, interpolate_pos_encoding=True).last_hidden_state
        return _map_of(tokens, x, 8)

    return Encoder(network, 48, 8, features)


def sam() -> nn.Module:
    """Return the vision encoder of SAM: two blocks of windows, padded, and one of the map."""
    settings = {
        "num_hidden_layers": 3,
        "image_size": 160,
        "patch_size": 8,
        "window_size": 7,
        "global_attn_indexes": [2],
        "mlp_dim": 96,
        "output_channels": 24,
    }
    network = _built("sam", "SamVisionEncoder", "SamVisionConfig", **(_SMALL | settings))
    return Encoder(network, 24, 8, lambda network, x: network(x).last_hidden_state)


def sam2() -> nn.Module:
    """Return the Hiera of SAM 2: stages of windows with pooled queries, and one global block."""
    network = _built(
        "sam2",
        "Sam2HieraDetModel",
        "Sam2HieraDetConfig",
        hidden_size=32,
        num_attention_heads=1,
        image_size=[128, 128],
        blocks_per_stage=[1, 2, 2, 1],
        embed_dim_per_stage=[32, 64, 128, 256],
        num_attention_heads_per_stage=[1, 2, 4, 8],
        window_size_per_stage=[8, 4, 8, 4],
        global_attention_blocks=[4],
    )
    last = nn.Conv2d(256, 32, 1)

    def features(network: nn.Module, x: Tensor) -> Tensor:
        first, *_, deepest = network[0](x).intermediate_hidden_states
        return first.movedim(3, 1) + nn.functional.interpolate(
            network[1](deepest.movedim(3, 1)), scale_factor=8.0
        )

    return Encoder(nn.Sequential(network, last), 32, 4, features)


def vitdet() -> nn.Module:
    """Return ViTDet: two blocks of windows and one of the map."""
    settings = {
        "num_hidden_layers": 3,
        "image_size": 112,
        "pretrain_image_size": 112,
        "patch_size": 8,
        "window_size": 7,
        "window_block_indices": [0, 1],
        "use_relative_position_embeddings": True,
    }
    network = _built("vitdet", "VitDetModel", "VitDetConfig", **(_SMALL | settings))
    return Encoder(network, 48, 8, lambda network, x: network(x).last_hidden_state)


def swinv2() -> nn.Module:
    """Return Swinv2Model, with blocks in two stages, whose maps are both used."""
    settings = {"image_size": 128, "patch_size": 2, "embed_dim": 24, "window_size": 8}
    stages = {"depths": [2, 2], "num_heads": [2, 2]}
    network = _built("swinv2", "Swinv2Model", "Swinv2Config", **settings, **stages)
    return Encoder(network, 48, 4, lambda network, x: _map_of(network(x).last_hidden_state, x, 4))


def _built(module: str, model: str, configuration: str, **settings: Any) -> nn.Module:
    settings_of = getattr(importlib.import_module("transformers"), configuration)
    kind = getattr(importlib.import_module(f"{_MODELS}{module}.modeling_{module}"), model)
    network: nn.Module = kind(settings_of(**settings))
    return network


def _map_of(tokens: Tensor, x: Tensor, stride: int) -> Tensor:
    """Return tokens (B, N, C) of an image as a map (B, C, H / stride, W / stride)."""
    return tokens.mT.unflatten(2, (x.shape[2] // stride, x.shape[3] // stride))
