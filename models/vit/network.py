"""The vision transformer (Dosovitskiy et al., 2021) of the study of efficient attention.

One network for all of its attentions, under the keys of its published code; ``layouts.py`` brings
the keys of other libraries to these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import torch.nn.functional as F
from torch import Tensor, nn

from ..layers.stack import Stack
from .attention import Attention
from .embedding import Embedding, Stem
from .linformer import Linformer
from .nystromformer import Nystromformer, Padding, Start
from .performer import Kernel, Performer

Kind: TypeAlias = Literal["full", "linformer", "performer", "nystromformer"]
Pool: TypeAlias = Literal["class", "mean"]
Norm: TypeAlias = Literal["none", "tokens", "pooled"]
Gelu: TypeAlias = Literal["tanh", "none"]

_KINDS: dict[Kind, type[Attention]] = {
    "full": Attention,
    "linformer": Linformer,
    "performer": Performer,
    "nystromformer": Nystromformer,
}


class _Mlp(nn.Module):
    def __init__(self, width: int, hidden: int, gelu: Gelu) -> None:
        super().__init__()
        self.dense_1 = nn.Linear(width, hidden)
        self.dense_2 = nn.Linear(hidden, width)
        self.gelu = gelu

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.dense_2(F.gelu(self.dense_1(x), approximate=self.gelu))
        return out


class _Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(
        self, width: int, hidden: int, attention: Attention, gelu: Gelu, epsilon: float
    ) -> None:
        super().__init__()
        self.attention = attention
        self.layernorm_1 = nn.LayerNorm(width, epsilon)
        self.mlp = _Mlp(width, hidden, gelu)
        self.layernorm_2 = nn.LayerNorm(width, epsilon)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.layernorm_1(x))
        out: Tensor = x + self.mlp(self.layernorm_2(x))
        return out


class ViT(nn.Module):
    """(B, C, H, W) to logits (B, classes); H and W are those of the positions."""

    def __init__(
        self,
        *,
        image_size: Sequence[int] = (32, 32),
        patch_size: int = 4,
        num_channels: int = 3,
        num_classes: int = 10,
        hidden_size: int = 48,
        intermediate_size: int = 192,
        depth: int = 4,
        num_heads: int = 4,
        qkv_bias: bool = True,
        output_projection: bool = True,
        attention: Kind = "full",
        pool: Pool = "class",
        class_token: bool = True,
        stem: Stem = "patches",
        norm: Norm = "none",
        norm_epsilon: float = 1e-5,
        gelu: Gelu = "tanh",
        linformer_k: int = 32,
        linformer_length: int | None = None,
        linformer_shared: bool = True,
        rp_dim: int = 64,
        kernel: Kernel = "softmax",
        feature_seed: int = 0,
        num_landmarks: int = 16,
        conv_kernel_size: int = 0,
        start: Start = "original",
        padding: Padding = "end",
    ) -> None:
        """Build the layers.

        Args:
            image_size: Height and width of the image, multiples of the patch.
            patch_size: Side of a patch, in pixels.
            num_channels: Channels of the image.
            num_classes: Number of logits.
            hidden_size: Channels of a token.
            intermediate_size: Channels inside the feed-forward.
            depth: Number of blocks.
            num_heads: Attention heads of every block.
            qkv_bias: Queries, keys and values have a bias.
            output_projection: A linear layer mixes the heads.
            attention: What it was trained with.
            pool: Logits are made of the ``class`` token or of the ``mean`` of the patches' tokens.
            class_token: There is a class token; it must be for ``pool`` ``class``.
            stem: Tokens are ``patches`` of the image or of what two ``convolutions`` make of it.
            norm: The last norm is of the ``tokens``, of what is ``pooled``, or there is ``none``.
            norm_epsilon: Epsilon of the norms.
            gelu: Approximated by ``tanh``, or ``none``: exact.
            linformer_k: For ``linformer``: tokens that keys and values are projected to.
            linformer_length: Tokens that its projections are for; None: as many as there are.
            linformer_shared: All heads have the same projections.
            rp_dim: For ``performer``: random features.
            kernel: ``softmax`` or ``relu`` features.
            feature_seed: Seed of the features, where the network is not filled from a checkpoint.
            num_landmarks: For ``nystromformer``: segments of the row of tokens.
            conv_kernel_size: Taps of the convolution of its values, odd; 0 for none.
            start: Start of its pseudoinverse, see `segment_attention`.
            padding: Padding of its row of tokens, see `segment_attention`.

        Raises:
            ValueError: Numbers that do not fit each other.
        """
        super().__init__()
        rows, columns = grid = grid_of(image_size, patch_size)
        tokens = rows * columns + int(class_token)
        length = linformer_length or tokens
        _check(pool, class_token, attention, tokens, length)
        own: dict[Kind, dict[str, Any]] = {
            "full": {},
            "linformer": {"length": length, "linformer_k": linformer_k, "shared": linformer_shared},
            "performer": {"rp_dim": rp_dim, "kernel": kernel, "seed": feature_seed},
            "nystromformer": {
                "num_landmarks": num_landmarks,
                "start": start,
                "padding": padding,
                "conv_kernel_size": conv_kernel_size,
            },
        }

        def block() -> _Block:
            shared = {"bias": qkv_bias, "project": output_projection}
            layer = _KINDS[attention](hidden_size, num_heads, grid, **shared, **own[attention])
            return _Block(hidden_size, intermediate_size, layer, gelu, norm_epsilon)

        self.image_size = (rows * patch_size, columns * patch_size)
        self.pool, self.norm = pool, norm
        self.embedding = Embedding(
            num_channels, hidden_size, patch_size, grid, class_token=class_token, stem=stem
        )
        self.encoder = Stack([block() for _ in range(depth)])
        self.layernorm = (
            nn.Identity() if norm == "none" else nn.LayerNorm(hidden_size, norm_epsilon)
        )
        self.classifier = nn.Linear(hidden_size, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (B, classes) of images x (B, C, H, W)."""
        tokens = self.encoder(self.embedding(x))
        if self.pool == "class":
            tokens = tokens[:, :1]  # only this token is needed: the norm is per token
        elif self.embedding.cls_token is not None:
            tokens = tokens[:, 1:]
        if self.norm == "tokens":
            tokens = self.layernorm(tokens)
        pooled = tokens.mean(1)
        if self.norm == "pooled":
            pooled = self.layernorm(pooled)
        logits: Tensor = self.classifier(pooled)
        return logits


def grid_of(image_size: Sequence[int], patch_size: int) -> tuple[int, int]:
    """Return rows and columns of the patches of an image.

    Raises:
        ValueError: The size is not two numbers, or no multiple of the patch.
    """
    if len(image_size) != 2 or patch_size < 1:
        raise ValueError(f"image_size {list(image_size)} is not height and width")
    height, width = image_size
    if min(height, width) < 1 or height % patch_size or width % patch_size:
        raise ValueError(
            f"image_size {height}x{width} is not a multiple of the patches of {patch_size} pixels"
        )
    return height // patch_size, width // patch_size


def _check(pool: Pool, class_token: bool, attention: Kind, tokens: int, length: int) -> None:
    if pool == "class" and not class_token:
        raise ValueError("pool 'class' needs a class token; without one pool is 'mean'")
    if attention == "linformer" and tokens > length:
        raise ValueError(
            f"linformer's projections are for {length} tokens at most, these are {tokens}"
        )
