"""ESC-Real and ESC-RealM, for images of unknown degradation, state-dict compatible."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..layers.channel_map import MirroredConv2d
from ..layers.padding import crop, pad_to_multiple
from .network import EscNetwork


def _skip(inputs: int, dim: int) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, 2 * dim, 1),
        MirroredConv2d(2 * dim, 2 * dim, 7, groups=2 * dim),
        nn.LeakyReLU(0.2),
        nn.Conv2d(2 * dim, dim, 1),
    ]


class ESCReal(EscNetwork):
    """ESC-Real: (B, 3, H, W) to (B, 3, 4 H, 4 W), any H and W >= 1."""

    def __init__(
        self,
        *,
        dim: int = 64,
        n_blocks: int = 10,
        upscaling_factor: int = 4,
        exp_ratio: float = 2,
        **sizes: Any,
    ) -> None:
        """Build the network; arguments as of `EscNetwork`, but ``use_ln``.

        Raises:
            ValueError: The scale is not 4, or arguments contradict each other.
        """
        if upscaling_factor != 4:
            raise ValueError(f"upscaling_factor is {upscaling_factor}; ESC-Real has 4")
        super().__init__(
            dim=dim,
            n_blocks=n_blocks,
            upscaling_factor=upscaling_factor,
            exp_ratio=exp_ratio,
            use_ln=True,
            **sizes,
        )
        self.last = nn.Conv2d(dim, dim, 3, 1, 1)
        self.proj = nn.Conv2d(3, dim, 3, 1, 1)
        self.skip = nn.Sequential(*_skip(3, dim))
        doubled: list[nn.Module] = []
        for _ in range(2):
            doubled += [nn.Upsample(scale_factor=2.0), nn.Conv2d(dim, dim, 3, 1, 1)]
            doubled += [nn.LeakyReLU(0.2)]
        self.to_img = nn.Sequential(
            *doubled, nn.Conv2d(dim, dim, 3, 1, 1), nn.LeakyReLU(0.2), nn.Conv2d(dim, 3, 3, 1, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the restored image for x (B, 3, H, W), values 0..1."""
        features = self.proj(x)
        features = self.last(self.deep(features)) + features + self.skip(x)
        image: Tensor = self.to_img(features)
        return image


class ESCRealM(EscNetwork):
    """ESC-RealM of scale 1 or 2, whose blocks work on a quarter of the size of its output."""

    def __init__(
        self,
        *,
        dim: int = 64,
        n_blocks: int = 10,
        upscaling_factor: int = 2,
        exp_ratio: float = 2,
        mid_dim: int = 64,
        upsampler: str = "pixelshuffle",
        unshuffle_mod: bool = True,
        **sizes: Any,
    ) -> None:
        """Build the network.

        Args:
            dim: As in `EscNetwork`.
            n_blocks: Blocks, each with one window attention.
            upscaling_factor: 1 or 2.
            exp_ratio: As in `EscNetwork`.
            mid_dim: Channels between the convolutions of the upsampler.
            upsampler: "pixelshuffle".
            unshuffle_mod: The image goes in as 4 / upscaling_factor squared images: True.
            **sizes: As in `EscNetwork`, but ``use_ln``.

        Raises:
            ValueError: A variant that nystra does not know, or arguments that contradict.
        """
        if upscaling_factor not in (1, 2) or upsampler != "pixelshuffle" or not unshuffle_mod:
            raise ValueError(
                f"upscaling_factor {upscaling_factor}, upsampler {upsampler!r}, unshuffle_mod "
                f"{unshuffle_mod}: of ESC-RealM nystra supports the scales 1 and 2 with "
                "unshuffle_mod, and the upsampler 'pixelshuffle'"
            )
        super().__init__(
            dim=dim,
            n_blocks=n_blocks,
            upscaling_factor=upscaling_factor,
            exp_ratio=exp_ratio,
            use_ln=True,
            **sizes,
        )
        self.last = nn.Conv2d(dim, dim, 3, 1, 1)
        self.folded = 4 // upscaling_factor
        inputs = 3 * self.folded**2
        unshuffle = nn.PixelUnshuffle(self.folded)
        self.proj = nn.Sequential(unshuffle, nn.Conv2d(inputs, dim, 3, 1, 1))
        self.skip = nn.Sequential(unshuffle, *_skip(inputs, dim))
        self.to_img = nn.Sequential(nn.Conv2d(dim, mid_dim, 3, 1, 1), nn.LeakyReLU(0.01))
        for _ in range(2):
            self.to_img.append(nn.Conv2d(mid_dim, 4 * mid_dim, 3, 1, 1))
            self.to_img.append(nn.PixelShuffle(2))
        self.to_img.append(nn.Conv2d(mid_dim, 3, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the restored image for x (B, 3, H, W), values 0..1."""
        image = pad_to_multiple(x, (self.folded, self.folded))
        features = self.proj(image)
        features = self.last(self.deep(features)) + features + self.skip(image)
        restored = self.to_img(features)
        return crop(restored, x.shape[2] * self.scale, x.shape[3] * self.scale)
