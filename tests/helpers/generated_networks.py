"""Networks made from a seed: what padding, skips, masks, branches and attention may look like.

Each is a module as a user writes it. Every choice is one that an exporter may get wrong: padding by
several rules and at several sides, something else that uses the image or its size, a branch on a
size, a score that is replaced, statistics of a batch.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHOICES: dict[str, tuple[str, ...]] = {
    "padding": ("none", "reflect", "constant", "replicate", "left", "both", "by size"),
    "body": ("plain", "windows", "replaced scores", "replaced scores", "statistics"),
    "skip": ("none", "plain", "bicubic", "nearest"),
    "beside": ("none", "none", "mask", "mean", "position", "gate"),
    "branch": ("none", "none", "square", "multiple", "area", "batch", "aspect"),
    "inputs": ("one", "one", "one", "two"),
}
"""What is chosen, each value as often as it stands here."""

_SIDE = 8
_CHANNELS = 8


@dataclass(frozen=True)
class Choice:
    """What a network is made of, a value of each of `CHOICES`, and its scale."""

    padding: str
    body: str
    skip: str
    beside: str
    branch: str
    inputs: str
    scale: int

    @classmethod
    def of(cls, seed: int) -> Choice:
        """Return the choice of a seed; of five, three have one special property alone."""
        pick = random.Random(seed)
        chosen: dict[str, Any] = {name: pick.choice(values) for name, values in CHOICES.items()}
        plain = {name: values[0] for name, values in CHOICES.items()}
        name = list(CHOICES)[seed % len(CHOICES)]
        if pick.random() < 0.6:  # several special properties are mostly refused together
            special = [value for value in CHOICES[name] if value != plain[name]]
            padding = pick.choice(("reflect", chosen["padding"]))
            chosen = plain | {"padding": padding, name: pick.choice(special)}
        return cls(**chosen, scale=pick.choice((1, 2)))


class Generated(nn.Module):
    """The network of a choice."""

    def __init__(self, choice: Choice, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.choice = choice
        self.first = nn.Conv2d(3, _CHANNELS, 3, padding=1)
        self.qkv = nn.Linear(_CHANNELS, 3 * _CHANNELS)
        self.norm = nn.BatchNorm2d(_CHANNELS, track_running_stats=False)
        self.last = nn.Conv2d(_CHANNELS, 3 * choice.scale**2, 3, padding=1)

    def forward(self, image: Tensor, other: Tensor | None = None) -> Tensor:
        """Return the image (B, 3, H * scale, W * scale) of an image (B, 3, H, W)."""
        choice, scale = self.choice, self.choice.scale
        height, width = image.shape[2:]
        top, left, padded = self._padded(image)
        y = self.first(padded)
        if other is not None:
            y = y + self.first(self._padded(other)[2])
        y = self._body(y, padded, (height, width))
        whole = F.pixel_shuffle(self.last(y), scale)
        rows = slice(top * scale, (top + height) * scale)
        columns = slice(left * scale, (left + width) * scale)
        result = self._with_skip(whole[:, :, rows, columns], image)
        if choice.beside == "gate":
            result = result * torch.sigmoid(image.mean((2, 3), keepdim=True) * 4 - 2)
        return result * 0.5 if self._is_other_branch(image) else result

    def _padded(self, image: Tensor) -> tuple[int, int, Tensor]:
        padding = self.choice.padding
        height, width = image.shape[2:]
        down, right = -height % _SIDE, -width % _SIDE
        if padding == "none" and self.choice.body not in ("windows", "replaced scores"):
            return 0, 0, image
        if padding == "left":
            return down, right, F.pad(image, (right, 0, down, 0), "reflect")
        if padding == "both":
            pads = (right // 2, right - right // 2, down // 2, down - down // 2)
            return down // 2, right // 2, F.pad(image, pads, "reflect")
        if padding == "by size":
            padding = "reflect" if min(height, width) > 24 else "replicate"
        mode = "reflect" if padding == "none" else padding
        return 0, 0, F.pad(image, (0, right, 0, down), mode)

    def _body(self, y: Tensor, padded: Tensor, size: tuple[int, int]) -> Tensor:
        height, width = size
        if self.choice.body in ("windows", "replaced scores"):
            y = y + self._attention(y, padded)
        elif self.choice.body == "statistics":
            y = self.norm(y)
        if self.choice.beside == "mask":
            inside = torch.ones(1, 1, height, width, device=y.device)
            down, right = padded.shape[2] - height, padded.shape[3] - width
            y = y * (0.5 + F.pad(inside, (0, right, 0, down)))
        if self.choice.beside == "mean":
            y = y + y.mean((2, 3), keepdim=True)
        if self.choice.beside == "position":
            y = y + torch.arange(width, device=y.device)[-1] / 100
        return F.gelu(y)

    def _attention(self, y: Tensor, padded: Tensor) -> Tensor:
        batch, channels, height, width = y.shape
        tokens = _windows(y)
        q, k, v = self.qkv(tokens).chunk(3, -1)
        scores = q @ k.transpose(1, 2) * channels**-0.5
        if self.choice.body == "replaced scores":  # white pixels are weak keys
            white = _windows(padded.amin(1, keepdim=True) > 0.9995).transpose(1, 2)
            scores = torch.where(white, torch.full_like(scores, -2.0), scores)
        mixed = scores.softmax(-1) @ v
        grid = (batch, height // _SIDE, width // _SIDE, _SIDE, _SIDE, channels)
        rows = mixed.reshape(grid).permute(0, 5, 1, 3, 2, 4)
        return rows.reshape(batch, channels, height, width)

    def _with_skip(self, result: Tensor, image: Tensor) -> Tensor:
        skip, scale = self.choice.skip, self.choice.scale
        if skip == "none":
            return result
        if skip == "plain" and scale == 1:
            return result + image
        mode = "bicubic" if skip == "bicubic" else "nearest"
        return result + F.interpolate(image, scale_factor=scale, mode=mode)

    def _is_other_branch(self, image: Tensor) -> bool:
        batch, _, height, width = image.shape
        branch = self.choice.branch
        return bool(
            (branch == "square" and height == width)
            or (branch == "multiple" and height % 64 == 0)
            or (branch == "area" and height * width > 9000)
            or (branch == "batch" and batch == 1)
            or (branch == "aspect" and height > 3 * width)
        )


def _windows(y: Tensor) -> Tensor:
    """Return maps (B, C, H, W) as windows (B * count, tokens, C)."""
    batch, channels, height, width = y.shape
    cut = y.reshape(batch, channels, height // _SIDE, _SIDE, width // _SIDE, _SIDE)
    return cut.permute(0, 2, 4, 3, 5, 1).reshape(-1, _SIDE * _SIDE, channels)


def images(seed: int) -> list[Tensor]:
    """Return images (B, 3, H, W) whose sizes and contents an exporter does not know."""
    pick = random.Random(f"images {seed}")
    noise = torch.Generator().manual_seed(seed)
    sizes = [(64, 64), (64, 9), (133, 141), (pick.randrange(9, 24), pick.randrange(9, 24))]
    sizes += [(pick.randrange(25, 90), pick.randrange(9, 90)) for _ in range(3)]
    sizes += [(61, 15), (40, 40), (96, 128)]
    found = []
    for place, (height, width) in enumerate(sizes):
        batch = pick.choice((1, 1, 2, 3))
        image = torch.rand(batch, 3, height, width, generator=noise)
        if place % 2:
            image[:, :, : height // 2] = 1.0
        found.append(image)
    return found
