"""A small diffusion-transformer-like restorer: global attention, rotary places, qk-norm, adaLN.

nystra-export dit.safetensors --module studies/tokens/restorer.py:Restorer --attn nystra
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PATCH = 2


class Block(nn.Module):
    """Attention between all tokens and an MLP, shifted, scaled and gated by the noise level."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.attend = heads, F.scaled_dot_product_attention
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.q_norm, self.k_norm = nn.RMSNorm(width // heads), nn.RMSNorm(width // heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU("tanh"), nn.Linear(2 * width, width)
        )
        self.ada = nn.Linear(width, 6 * width)
        nn.init.zeros_(self.ada.weight)
        nn.init.zeros_(self.ada.bias)

    def forward(self, x: Tensor, level: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return tokens (B, N, C); level (B, C), cos and sin (N, D / 2)."""
        parts = self.ada(F.silu(level))[:, None].chunk(6, -1)
        y = self.norm1(x) * (1 + parts[0]) + parts[1]
        q, k, v = self.qkv(y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = turn(self.q_norm(q), cos, sin), turn(self.k_norm(k), cos, sin)
        attended = self.attend(q, k, v).transpose(1, 2).flatten(2)
        x = x + parts[2] * self.proj(attended)
        changed: Tensor = parts[5] * self.mlp(self.norm2(x) * (1 + parts[3]) + parts[4])
        return x + changed


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return queries or keys (B, heads, N, D) turned by the angles of their places."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Conditional(nn.Module):
    """Image (B, 3, H, W), 0..1, of even sides and noise level (B,), 0..1, to the image without."""

    def __init__(self, width: int = 64, heads: int = 2, blocks: int = 4, pixels: int = 16) -> None:
        super().__init__()
        self.angles = width // heads // 4  # of rows, and as many of columns
        self.first = nn.Conv2d(3, pixels, 3, padding=1)
        self.embed = nn.Linear(pixels * PATCH**2, width)
        self.level = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        self.back = nn.Linear(width, pixels * PATCH**2)
        self.last = nn.Conv2d(pixels, 3, 3, padding=1)

    def forward(self, image: Tensor, level: Tensor) -> Tensor:
        """Return the restored image."""
        pixels = self.first(image)
        rows, columns = image.shape[2] // PATCH, image.shape[3] // PATCH
        tokens = self.embed(F.pixel_unshuffle(pixels, PATCH).flatten(2).transpose(1, 2))
        angles = self.places(rows, columns).to(tokens)
        condition = self.level(level[:, None])
        for block in self.blocks:
            tokens = block(tokens, condition, angles.cos(), angles.sin())
        tokens = self.back(self.norm(tokens)).transpose(1, 2)
        back = F.pixel_shuffle(tokens.unflatten(2, (rows, columns)), PATCH)
        restored: Tensor = image + self.last(pixels + back)
        return restored

    def places(self, rows: int, columns: int) -> Tensor:
        """Return the angles of all tokens, (rows * columns, D / 2)."""
        rates = 100.0 ** -torch.linspace(0, 1, self.angles)
        down, right = torch.arange(rows)[:, None] * rates, torch.arange(columns)[:, None] * rates
        shape = (rows, columns, self.angles)
        both = torch.cat([down[:, None].expand(shape), right[None].expand(shape)], -1)
        return both.flatten(0, 1)


class Restorer(Conditional):
    """The same for one noise level, of 255: images alone are its input."""

    def __init__(self, sigma: float = 25.0, **sizes: int) -> None:
        super().__init__(**sizes)
        self.sigma = sigma

    def forward(self, image: Tensor) -> Tensor:  # type: ignore[override]
        """Return the restored image."""
        return super().forward(image, image.new_full((image.shape[0],), self.sigma / 255))
