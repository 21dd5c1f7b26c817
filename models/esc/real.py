"""ESC-Real and ESC-RealM, for images of unknown degradation, state-dict compatible."""

from __future__ import annotations

from torch import Tensor, nn

from ..layers.channel_map import MirroredConv2d
from ..layers.padding import crop, pad_to_multiple
from .block import BlockPlan
from .convolutions import LargeFilter
from .network import LargeFilterNetwork, table_attention


def _skip(inputs: int, dim: int) -> list[nn.Module]:
    """Return the layers of the skip from the image to the end of the blocks."""
    return [
        nn.Conv2d(inputs, 2 * dim, 1),
        MirroredConv2d(2 * dim, 2 * dim, 7, groups=2 * dim),
        nn.LeakyReLU(0.2),
        nn.Conv2d(2 * dim, dim, 1),
    ]


class _Real(LargeFilterNetwork):
    """The common part: the blocks and the convolution after them."""

    def __init__(
        self,
        *,
        dim: int,
        pdim: int,
        kernel_size: int,
        n_blocks: int,
        conv_blocks: int,
        window_size: int,
        num_heads: int,
        exp_ratio: float,
        scale: int,
    ) -> None:
        plan = BlockPlan(
            dim=dim,
            part=pdim,
            steps=conv_blocks,
            first_ratio=2,
            ratio=exp_ratio,
            norms=True,
            attention=table_attention(dim, num_heads, window_size),
            convolution=LargeFilter,
        )
        super().__init__(plan, kernel_size, n_blocks, window_size, scale)
        self.last = nn.Conv2d(dim, dim, 3, 1, 1)


class ESCReal(_Real):
    """ESC-Real: (B, 3, H, W) to (B, 3, 4 H, 4 W), any H and W >= 1."""

    def __init__(
        self,
        *,
        dim: int = 64,
        pdim: int = 16,
        kernel_size: int = 13,
        n_blocks: int = 10,
        conv_blocks: int = 5,
        window_size: int = 32,
        num_heads: int = 4,
        upscaling_factor: int = 4,
        exp_ratio: float = 2,
    ) -> None:
        """Build the network; arguments as in `ESC`.

        Raises:
            ValueError: The scale is not 4, or arguments contradict each other.
        """
        if upscaling_factor != 4:
            raise ValueError(f"upscaling_factor is {upscaling_factor}; ESC-Real has 4")
        super().__init__(
            dim=dim,
            pdim=pdim,
            kernel_size=kernel_size,
            n_blocks=n_blocks,
            conv_blocks=conv_blocks,
            window_size=window_size,
            num_heads=num_heads,
            exp_ratio=exp_ratio,
            scale=upscaling_factor,
        )
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


class ESCRealM(_Real):
    """ESC-RealM of scale 1 or 2, whose blocks work on a quarter of the size of its output."""

    def __init__(
        self,
        *,
        dim: int = 64,
        pdim: int = 16,
        kernel_size: int = 13,
        n_blocks: int = 10,
        conv_blocks: int = 5,
        window_size: int = 32,
        num_heads: int = 4,
        upscaling_factor: int = 2,
        exp_ratio: float = 2,
        mid_dim: int = 64,
        upsampler: str = "pixelshuffle",
        unshuffle_mod: bool = True,
    ) -> None:
        """Build the network; arguments as in `ESC`.

        Args:
            dim: As in `ESC`.
            pdim: The same.
            kernel_size: The same.
            n_blocks: The same.
            conv_blocks: The same.
            window_size: The same.
            num_heads: The same.
            upscaling_factor: 1 or 2.
            exp_ratio: The same.
            mid_dim: Channels between the convolutions of the upsampler.
            upsampler: "pixelshuffle".
            unshuffle_mod: The image goes in as 4 / upscaling_factor squared images: True.

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
            pdim=pdim,
            kernel_size=kernel_size,
            n_blocks=n_blocks,
            conv_blocks=conv_blocks,
            window_size=window_size,
            num_heads=num_heads,
            exp_ratio=exp_ratio,
            scale=upscaling_factor,
        )
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
