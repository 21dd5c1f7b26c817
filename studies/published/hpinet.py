"""HPINet-M (Liu et al., "From Coarse to Fine: Hierarchical Pixel Integration for Lightweight Image
Super-Resolution"), from its published weights, with its attentions as window sites.

The image is cut into overlapping patches, each of which attends within itself, and first to the
patch that is most similar to it. ``python -m studies.published`` measures it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nystra.models.geometry import WindowGeometry
from nystra.models.sites import WindowSite

CHANNELS, HEAD, HIDDEN = 56, 32, 100
SIDES = (12, 16, 20, 24) * 2
OVERLAP = 2
LAYERS = 3


class Attention(WindowSite):
    """Attention within patches: one head, no position bias."""

    def __init__(self, side: int) -> None:
        super().__init__(WindowGeometry(1, HEAD, CHANNELS, (side, side), (0, 0), False, HEAD**-0.5))
        self.to_q = nn.Linear(CHANNELS, HEAD, bias=False)
        self.to_k = nn.Linear(CHANNELS, HEAD, bias=False)
        self.to_v = nn.Linear(CHANNELS, CHANNELS, bias=False)

    def forward(self, own: Tensor, other: Tensor) -> Tensor:
        """Return the attention of patches (n, side side, C) to others."""
        qkv = torch.cat([self.to_q(own), self.to_k(other), self.to_v(other)], -1)
        out = self.attend(qkv.unflatten(1, self.geometry.window))
        return out.flatten(1, 2)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(CHANNELS, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc2(F.gelu(self.fc1(x)))
        return out


class Normed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(CHANNELS)
        self.fn = inner


class Block(nn.Module):
    def __init__(self, side: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList([Normed(Attention(side)), Normed(Mlp())]) for _ in range(LAYERS)
        )

    def forward(self, patches: Tensor, similar: Tensor) -> Tensor:
        """Return patches (n, side side, C); the first layer attends to the similar ones."""
        for number, (attention, mlp) in enumerate(self.layers):  # type: ignore[misc]
            own = attention.norm(patches)
            patches = patches + attention.fn(own, own if number else similar)
            patches = patches + mlp.fn(mlp.norm(patches))
        return patches


class Match(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(CHANNELS)

    def forward(self, patches: Tensor) -> Tensor:
        """Return the index of the patch most similar to each of (n, side side, C)."""
        means = self.norm(patches.mean(1))
        scores = means @ means.T * CHANNELS**-0.5
        out: Tensor = (scores - 100 * torch.eye(len(scores))).argmax(-1)
        return out


class HPINet(nn.Module):
    """HPINet-M for one image at a time."""

    def __init__(self, scale: int) -> None:
        super().__init__()
        self.scale = scale
        self.first_conv = _conv(3, CHANNELS)
        self.cross_match = nn.ModuleList(Match() for _ in SIDES)
        self.blocks = nn.ModuleList(Block(side) for side in SIDES)
        self.mid_convs = nn.ModuleList(_conv(CHANNELS, CHANNELS) for _ in SIDES)
        if scale == 4:
            self.upconv1 = _conv(CHANNELS, 4 * CHANNELS)
            self.upconv2 = _conv(CHANNELS, 4 * CHANNELS)
        else:
            self.upconv = _conv(CHANNELS, scale * scale * CHANNELS)
        self.last_conv = _conv(CHANNELS, 3)

    def forward(self, image: Tensor) -> Tensor:
        """Return the enlarged image (1, 3, scale H, scale W)."""
        features = self.first_conv(image)
        parts = zip(SIDES, self.cross_match, self.blocks, self.mid_convs, strict=True)
        for side, match, block, conv in parts:
            patches = _cut(features, side)
            done = block(patches, patches[match(patches)])
            features = features + conv(_joined(done, features, side))
        enlarged = F.interpolate(
            image, scale_factor=self.scale, mode="bilinear", align_corners=False
        )
        out: Tensor = enlarged + self.last_conv(self._enlarge(features))
        return out

    def _enlarge(self, features: Tensor) -> Tensor:
        if self.scale != 4:
            return F.leaky_relu(F.pixel_shuffle(self.upconv(features), self.scale), 0.1)
        for conv in (self.upconv1, self.upconv2):
            features = F.leaky_relu(F.pixel_shuffle(conv(features), 2), 0.1)
        return features


def _conv(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1)


def _starts(size: int, side: int) -> list[int]:
    step = side - OVERLAP
    if size <= side:
        return [0]
    return [min(start, size - side) for start in range(0, size + step - side, step)]


def _cut(features: Tensor, side: int) -> Tensor:
    """Return the patches (n, side side, C) of (1, C, H, W)."""
    rows, columns = (_starts(size, side) for size in features.shape[2:])
    patches = [
        features[0, :, y : y + side, x : x + side].flatten(1).T for y in rows for x in columns
    ]
    return torch.stack(patches)


def _joined(patches: Tensor, like: Tensor, side: int) -> Tensor:
    """Return the map (1, C, H, W) of patches: their sum over the number that the authors count.

    They count the last two rows and columns of each patch twice where another follows.
    """
    height, width = like.shape[2:]
    total = torch.zeros_like(like)
    counted = torch.ones_like(like[:, :1])
    number = 0
    for y in _starts(height, side):
        for x in _starts(width, side):
            total[0, :, y : y + side, x : x + side] += patches[number].T.unflatten(1, (side, side))
            number += 1
    for axis, size in ((2, height), (3, width)):
        for start in range(side - OVERLAP, size - OVERLAP, side - OVERLAP):
            first = min(start, size - side)
            counted.narrow(axis, first, start + OVERLAP - first).mul_(2)
    return total / counted


def build(state: Mapping[str, Tensor]) -> HPINet:
    """Return the network of published weights."""
    network = HPINet(4 if "module.upconv1.weight" in state else 2)
    network.load_state_dict({key.removeprefix("module."): value for key, value in state.items()})
    return network
