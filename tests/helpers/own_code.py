"""Code of a user's own network, as files for ``--module``."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import torch

WINDOWS = '''
import torch
import torch.nn.functional as F
from torch import nn


def merge(windows, side, h, w):
    b = int(windows.shape[0] / (h * w / side / side))
    x = windows.view(b, h // side, w // side, side, side, -1)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, -1)


class Net(nn.Module):
    """(B, 3, H, W) to (B, 3, 2 H, 2 W): attention in windows, sides padded inside."""

    def __init__(self, dim=8, side=4):
        super().__init__()
        self.side = side
        self.stem = nn.Conv2d(3, dim, 3, padding=1)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.up = nn.Sequential(nn.Conv2d(dim, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, image):
        side, (h, w) = self.side, image.shape[2:]
        x = F.pad(image, (0, -w % side, 0, -h % side), "reflect")
        y = self.stem(x).permute(0, 2, 3, 1)
        b, rows, columns, c = y.shape
        z = y.view(b, rows // side, side, columns // side, side, c).permute(0, 1, 3, 2, 4, 5)
        q, k, v = self.qkv(z.reshape(-1, side * side, c)).chunk(3, 2)
        z = (q @ k.transpose(1, 2) * c**-0.5).softmax(-1) @ v
        y = y + merge(z, side, rows, columns)
        return self.up(y.permute(0, 3, 1, 2))[:, :, : 2 * h, : 2 * w]


def build(dim=8):
    print("building")
    return Net(dim)
'''
"""A network that pads to 4 by itself, and finds the batch as most networks with windows do."""

SITES = """
from nystra.models import WindowGeometry, WindowSite, crop, pad_to_multiple
from torch import nn


class Attention(WindowSite):
    def __init__(self, dim, shift):
        super().__init__(WindowGeometry(1, dim, dim, (4, 4), (shift, shift), scale=dim**-0.5))
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        return self.attend(self.qkv(x))


class Net(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.head, self.tail = nn.Conv2d(3, dim, 3, padding=1), nn.Conv2d(dim, 3, 3, padding=1)
        self.attention = Attention(dim, 2)

    def forward(self, image):
        y = self.head(pad_to_multiple(image, (4, 4))).permute(0, 2, 3, 1)
        y = self.tail((y + self.attention(y)).permute(0, 3, 1, 2))
        return image + crop(y, *image.shape[2:])
"""
"""A network whose author states the site."""


def written(folder: Path, text: str, name: str = "net.py") -> Path:
    """Write a file of code; return its path."""
    (folder / name).write_text(text)
    return folder / name


def network(text: str, name: str = "own_code_of_a_test", **arguments: int) -> torch.nn.Module:
    """Return the ``Net`` of a text, with seeded weights."""
    space = ModuleType(name)
    sys.modules[name] = space
    exec(text, vars(space))
    torch.manual_seed(0)
    made: torch.nn.Module = space.Net(**arguments)
    return made
