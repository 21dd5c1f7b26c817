"""Nystromformer (Xiong et al., 2021): landmarks are means of segments of the row of tokens."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...plugins.operators.attention_torch import nystromformer_attention, softmax_attention
from ..geometry import TokenGeometry
from .attention import Attention

Padding: TypeAlias = Literal["end", "front", "none"]
Start: TypeAlias = Literal["original", "exact"]

_ITERATIONS = 6


def segment_means(tokens: int, landmarks: int, like: Tensor) -> Tensor:
    """Return the matrix (landmarks, tokens) that averages consecutive tokens.

    Where the landmarks do not divide the tokens, the last segments are longer by one.

    Raises:
        ValueError: There are more landmarks than tokens.
    """
    if landmarks > tokens:
        raise ValueError(f"{landmarks} landmarks, expected at most {tokens}, the number of tokens")
    shorter, longer = divmod(tokens, landmarks)
    bounds = torch.tensor(
        [shorter * part + max(0, part - (landmarks - longer)) for part in range(landmarks + 1)],
        device=like.device,
    ).unsqueeze(1)
    place = torch.arange(tokens, device=like.device)
    inside = (place >= bounds[:-1]) & (place < bounds[1:])
    return inside.to(like) / (bounds[1:] - bounds[:-1]).to(like)


def segment_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    landmarks: int,
    scale: float,
    *,
    start: Start = "original",
    padding: Padding = "end",
    taps: Tensor | None = None,
) -> Tensor:
    """Return Nystromformer attention of tokens in a row, (B, h, N, e).

    Args:
        q: (B, h, N, d).
        k: (B, h, N, d).
        v: (B, h, N, e).
        landmarks: m; with as many as tokens the attention is exact.
        scale: Factor of q.k.
        start: The pseudoinverse starts scaled over the whole batch (``original``: a result then
            depends on the batch, as published), or per matrix (``exact``).
        padding: Zero tokens at the ``end`` or the ``front`` make the number a multiple of the
            landmarks; they take part as keys, as published. ``none``: uneven segments.
        taps: (h, 1, t, 1), t odd: a depthwise convolution of the values over the tokens is added.
    """
    count = q.shape[-2]
    skip = (
        0.0
        if taps is None
        else F.conv2d(v, taps, padding=(taps.shape[2] // 2, 0), groups=len(taps))
    )
    if landmarks == count:
        return softmax_attention(q, k, v, scale) + skip
    more = 0 if padding == "none" else -count % landmarks
    before, after = (more, 0) if padding == "front" else (0, more)
    q, k, v = (F.pad(tokens, (0, 0, before, after)) for tokens in (q, k, v))
    means = segment_means(count + more, landmarks, q)
    out = nystromformer_attention(
        q,
        k,
        v,
        means @ q,
        means @ k,
        scale=scale,
        iterations=_ITERATIONS,
        batch_init=start == "original",
    )
    return out[..., before : before + count, :] + skip


class Nystromformer(Attention):
    """Attention by segment landmarks, with or without the convolution next to it."""

    def __init__(
        self,
        width: int,
        heads: int,
        grid: tuple[int, int],
        *,
        num_landmarks: int,
        start: Start,
        padding: Padding,
        conv_kernel_size: int,
        **common: Any,
    ) -> None:
        """Build the layers; arguments as for `Attention`.

        Args:
            width: Channels of a token.
            heads: Attention heads.
            grid: Rows and columns of the tokens.
            num_landmarks: Segments of the row of tokens.
            start: As for `segment_attention`.
            padding: As for `segment_attention`.
            conv_kernel_size: Odd taps of the convolution of the values; 0 for none.
            **common: Further arguments of `Attention`.

        Raises:
            ValueError: An even number of taps.
        """
        super().__init__(width, heads, grid, **common)
        if conv_kernel_size and conv_kernel_size % 2 == 0:
            raise ValueError(f"conv_kernel_size {conv_kernel_size} must be odd, or 0 for none")
        self.landmarks, self.start, self.padding = num_landmarks, start, padding
        self.conv = (
            nn.Conv2d(
                heads,
                heads,
                (conv_kernel_size, 1),
                padding=(conv_kernel_size // 2, 0),
                groups=heads,
                bias=False,
            )
            if conv_kernel_size
            else None
        )
        self.implementation = self.by_segments

    def by_segments(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, geometry: TokenGeometry
    ) -> Tensor:
        """Return the trained attention; a bias between tokens is not possible."""
        return segment_attention(
            q,
            k,
            v,
            self.landmarks,
            geometry.scale,
            start=self.start,
            padding=self.padding,
            taps=None if self.conv is None else self.conv.weight,
        )
