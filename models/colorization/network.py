"""Guided colorization by one attention layer (Cherel et al., 2022, section 4.3).

It is as small as possible, so that its result depends mostly on the attention: a 3x3 convolution to
16 channels, attention between 7x7 patches, a 3x3 convolution to 3 channels, and a skip. The paper
publishes no checkpoint and does not say what is convolved; here

* queries are the gray image, keys the luma of the reference, by one shared convolution, so that
  equal patches have the distance 0, or by one each (the paper's projections of Q and K);
* values are the color differences of the reference (color minus luma), by another one;
* the skip adds the gray image to each of the three channels, so that attention has to bring
  the color only.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ..geometry import PatchGeometry
from ..sites import PatchSite

_LUMA = (0.299, 0.587, 0.114)  # BT.601, as the runtime turns color into gray


class PatchAttention(PatchSite):
    """The attention layer by itself: it has no parameters."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return value (B, Cv, Hk, Wk) by matches of query (B, C, H, W), key (B, C, Hk, Wk)."""
        return self.attend(query, key, value)


class Colorization(nn.Module):
    """A gray image and a reference in color to an image in color, sizes from 1x1 on."""

    luma: Tensor

    def __init__(
        self,
        *,
        channels: int = 16,
        patch: int = 7,
        metric: Literal["l2", "dot"] = "l2",
        scale: float = 1.0,
        shared: bool = True,
    ) -> None:
        """Build the network.

        Args:
            channels: Channels of the maps that are compared and passed on.
            patch: Odd side of the compared patches.
            metric: ``l2`` or ``dot``, see ``PatchGeometry``.
            scale: Factor of the scores, an inverse temperature.
            shared: Queries and keys come from one convolution.

        Raises:
            ValueError: An even patch, another metric, or a scale that is not positive.
        """
        super().__init__()
        if patch < 1 or patch % 2 == 0:
            raise ValueError(f"patch {patch} must be odd")
        if metric not in ("l2", "dot"):
            raise ValueError(f"metric {metric!r} is neither 'l2' nor 'dot'")
        if not scale > 0:
            raise ValueError(f"scale {scale} must be above 0")
        self.register_buffer("luma", torch.tensor(_LUMA).view(1, 3, 1, 1), persistent=False)
        self.embed = nn.Conv2d(1, channels, 3, padding=1)
        self.embed_key = None if shared else nn.Conv2d(1, channels, 3, padding=1)
        self.embed_color = nn.Conv2d(3, channels, 3, padding=1)
        self.attention = PatchAttention(
            PatchGeometry(patch=patch, metric=metric, scale=scale, border="replicate")
        )
        self.project = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, image: Tensor, reference: Tensor) -> Tensor:
        """Return the image in color.

        Args:
            image: Gray, (B, 1, H, W) in 0..1.
            reference: An image of a similar scene, RGB, (B, 3, Hr, Wr) in 0..1.

        Returns:
            (B, 3, H, W), RGB, not clipped.
        """
        gray = (reference * self.luma).sum(1, keepdim=True)
        color = self.embed_color(reference - gray)
        key = self.embed if self.embed_key is None else self.embed_key
        matched = self.attention(self.embed(image), key(gray), color)
        colored: Tensor = image + self.project(matched)
        return colored
