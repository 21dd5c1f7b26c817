"""From an image to tokens: patches or a small convolutional network, positions, class token."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Stem: TypeAlias = Literal["patches", "convolutions"]


class _BatchNorm(nn.Module):
    """Batch normalization by running means, without PyTorch's count of batches."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training
        )


class _Patches(nn.Module):
    def __init__(self, channels: int, width: int, patch: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(channels, width, patch, patch)

    def forward(self, x: Tensor) -> Tensor:
        tokens: Tensor = self.projection(x).flatten(2).transpose(1, 2)
        return tokens


def _convolutions(channels: int, width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs in (channels, width):
        layers += [nn.Conv2d(inputs, width, 3, padding=1), _BatchNorm(width), nn.ReLU()]
    return nn.Sequential(*layers)


class Embedding(nn.Module):
    """(B, C, H, W) to (B, N, width): tokens with positions, the class token first."""

    def __init__(
        self,
        channels: int,
        width: int,
        patch: int,
        grid: tuple[int, int],
        *,
        class_token: bool,
        stem: Stem,
    ) -> None:
        """Build the layers.

        Args:
            channels: Channels of the image.
            width: Width of a token.
            patch: Side of a patch, in pixels.
            grid: Rows and columns of patches.
            class_token: A learned token comes before those of the patches.
            stem: ``patches`` of the image, or of what two ``convolutions`` make of it.
        """
        super().__init__()
        inner = channels if stem == "patches" else width
        self.backbone = None if stem == "patches" else _convolutions(channels, width)
        self.patch_embeddings = _Patches(inner, width, patch)
        self.cls_token = nn.Parameter(torch.randn(1, 1, width) * 0.02) if class_token else None
        count = grid[0] * grid[1] + int(class_token)
        self.position_embeddings = nn.Parameter(torch.randn(1, count, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Return the tokens of an image x (B, C, H, W)."""
        tokens = self.patch_embeddings(x if self.backbone is None else self.backbone(x))
        if self.cls_token is not None:
            tokens = torch.cat([self.cls_token.expand(tokens.shape[0], -1, -1), tokens], 1)
        placed: Tensor = tokens + self.position_embeddings
        return placed
