"""Inpainting with contextual attention (Yu et al., 2018): a coarse and a refining generator.

State-dict compatible with generator checkpoints of the PyTorch form with ``coarse_generator`` and
``fine_generator``. Unlike there, each image of a batch is filled by its own mask.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..geometry import PatchGeometry
from ..layers.padding import crop, pad_to_multiple
from ..sites import PatchSite

MULTIPLE = 8
"""Inside the network height and width are multiples of it."""

_MASK_STEP = 4  # features are at a quarter of the image's size

_Activation = Callable[[Tensor], Tensor]


def _same(x: Tensor) -> Tensor:
    return x


class ContextualAttention(PatchSite):
    """Features composed of patches of the known background.

    Source: J. Yu et al., "Generative Image Inpainting with Contextual Attention", 2018, section 4.
    """

    def __init__(
        self,
        ksize: int = 3,
        rate: int = 2,
        fuse_k: int = 3,
        softmax_scale: float = 10.0,
        fuse: bool = True,
    ) -> None:
        """Describe the site; it has no parameters.

        Args:
            ksize: Side of the compared patches.
            rate: Both maps are shrunk by it before they are compared.
            fuse_k: Side of the filter that favors neighboring matches.
            softmax_scale: Factor of the scores.
            fuse: Use that filter.
        """
        super().__init__(
            PatchGeometry(
                patch=ksize,
                scale=softmax_scale,
                key_norm="ridge",
                key_epsilon=1e-4,
                shrink=rate,
                fuse=fuse_k if fuse else 0,
                value_patch=2 * rate,
                value_stride=rate,
                divisor=4.0,
            )
        )

    def forward(self, f: Tensor, b: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return f (B, C, H, W) composed of patches of b (B, C, Hb, Wb).

        Args:
            f: Foreground, H and W multiples of the rate.
            b: Background, sides multiples of the rate.
            mask: (B or 1, 1, 4 Hb, 4 Wb), 1 = missing; None takes all of b as known.
        """
        intact = None if mask is None else 1.0 - mask[:, :, ::_MASK_STEP, ::_MASK_STEP]
        return self.attend(f, b, b, intact)


class Conv(nn.Module):
    """A convolution that keeps the size (or halves it), and its activation."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 3,
        stride: int = 1,
        dilation: int = 1,
        activation: _Activation = F.elu,
    ) -> None:
        super().__init__()
        padding = dilation * (kernel // 2)
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution of x."""
        return self.activation(self.conv(x))


def _down(inputs: int, outputs: int) -> Conv:
    return Conv(inputs, outputs, stride=2)


def _decode(owner: nn.Module, prefix: str, width: int, inputs: int, colors: int) -> None:
    plan = [
        (inputs, 4 * width),
        (4 * width, 4 * width),
        (4 * width, 2 * width),
        (2 * width, 2 * width),
        (2 * width, width),
        (width, width // 2),
    ]
    for number, (before, after) in enumerate(plan, 11):
        owner.add_module(f"{prefix}{number}", Conv(before, after))
    owner.add_module(f"{prefix}17", Conv(width // 2, colors, activation=_same))


def _run_decoder(owner: nn.Module, prefix: str, x: Tensor) -> Tensor:
    for number in range(11, 18):
        if number in (13, 15):
            x = F.interpolate(x, scale_factor=2.0)
        x = owner.get_submodule(f"{prefix}{number}")(x)
    return x.clamp(-1.0, 1.0)


def _with_mask(x: Tensor, mask: Tensor) -> Tensor:
    return torch.cat([x, torch.ones_like(mask), mask], 1)


class CoarseGenerator(nn.Module):
    """The first guess: an image with a hole to a whole image, both in -1..1."""

    def __init__(self, colors: int, width: int) -> None:
        super().__init__()
        self.conv1 = Conv(colors + 2, width, 5)
        self.conv2_downsample = _down(width, 2 * width)
        self.conv3 = Conv(2 * width, 2 * width)
        self.conv4_downsample = _down(2 * width, 4 * width)
        self.conv5 = Conv(4 * width, 4 * width)
        self.conv6 = Conv(4 * width, 4 * width)
        self.conv7_atrous = Conv(4 * width, 4 * width, dilation=2)
        self.conv8_atrous = Conv(4 * width, 4 * width, dilation=4)
        self.conv9_atrous = Conv(4 * width, 4 * width, dilation=8)
        self.conv10_atrous = Conv(4 * width, 4 * width, dilation=16)
        _decode(self, "conv", width, 4 * width, colors)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the guess for x (B, C, H, W), its hole zeroed, and mask (B, 1, H, W)."""
        y = self.conv3(self.conv2_downsample(self.conv1(_with_mask(x, mask))))
        y = self.conv6(self.conv5(self.conv4_downsample(y)))
        y = self.conv8_atrous(self.conv7_atrous(y))
        y = self.conv10_atrous(self.conv9_atrous(y))
        return _run_decoder(self, "conv", y)


class FineGenerator(nn.Module):
    """The refinement: one branch of convolutions and one of attention, then a common decoder."""

    def __init__(self, colors: int, width: int) -> None:
        super().__init__()
        self.conv1 = Conv(colors + 2, width, 5)
        self.conv2_downsample = _down(width, width)
        self.conv3 = Conv(width, 2 * width)
        self.conv4_downsample = _down(2 * width, 2 * width)
        self.conv5 = Conv(2 * width, 4 * width)
        self.conv6 = Conv(4 * width, 4 * width)
        self.conv7_atrous = Conv(4 * width, 4 * width, dilation=2)
        self.conv8_atrous = Conv(4 * width, 4 * width, dilation=4)
        self.conv9_atrous = Conv(4 * width, 4 * width, dilation=8)
        self.conv10_atrous = Conv(4 * width, 4 * width, dilation=16)
        self.pmconv1 = Conv(colors + 2, width, 5)
        self.pmconv2_downsample = _down(width, width)
        self.pmconv3 = Conv(width, 2 * width)
        self.pmconv4_downsample = _down(2 * width, 4 * width)
        self.pmconv5 = Conv(4 * width, 4 * width)
        self.pmconv6 = Conv(4 * width, 4 * width, activation=F.relu)
        self.contextul_attention = ContextualAttention()
        self.pmconv9 = Conv(4 * width, 4 * width)
        self.pmconv10 = Conv(4 * width, 4 * width)
        _decode(self, "allconv", width, 8 * width, colors)

    def forward(self, x: Tensor, coarse: Tensor, mask: Tensor) -> Tensor:
        """Return the refined image; arguments as in ``CoarseGenerator`` and its result."""
        masked = _with_mask(coarse * mask + x * (1.0 - mask), mask)
        y = self.conv3(self.conv2_downsample(self.conv1(masked)))
        y = self.conv6(self.conv5(self.conv4_downsample(y)))
        y = self.conv8_atrous(self.conv7_atrous(y))
        y = self.conv10_atrous(self.conv9_atrous(y))
        z = self.pmconv3(self.pmconv2_downsample(self.pmconv1(masked)))
        z = self.pmconv6(self.pmconv5(self.pmconv4_downsample(z)))
        z = self.pmconv10(self.pmconv9(self.contextul_attention(z, z, mask)))
        return _run_decoder(self, "allconv", torch.cat([y, z], 1))


class InpaintingGenerator(nn.Module):
    """An image and a mask to an image without the hole, any height and width >= 1."""

    def __init__(self, *, input_dim: int = 3, ngf: int = 32) -> None:
        """Build the network.

        Args:
            input_dim: Channels of the image.
            ngf: Channels of the first maps, even; deeper ones have up to 4 times as many.

        Raises:
            ValueError: An odd or too small ``ngf``.
        """
        super().__init__()
        if ngf < 2 or ngf % 2:
            raise ValueError(f"ngf {ngf} must be even and at least 2")
        self.coarse_generator = CoarseGenerator(input_dim, ngf)
        self.fine_generator = FineGenerator(input_dim, ngf)

    def stages(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the coarse and the refined image, both whole and in -1..1, nothing pasted.

        Args:
            x: (B, input_dim, H, W) in -1..1, zero in the hole; H and W multiples of 8.
            mask: (B, 1, H, W), 1 in the hole and 0 elsewhere.
        """
        coarse = self.coarse_generator(x, mask)
        return coarse, self.fine_generator(x, coarse, mask)

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        """Return the image with its hole filled; outside the hole it is the input itself.

        Args:
            image: (B, input_dim, H, W) in 0..1; what is in the hole does not matter.
            mask: (B, 1, H, W); above 0.5 is the hole.
        """
        height, width = image.shape[2], image.shape[3]
        hole = mask > 0.5
        intact = torch.where(hole, 0.5, image)  # 0.5 is 0 in -1..1
        sides = (MULTIPLE, MULTIPLE)
        x, missing = pad_to_multiple(intact, sides), pad_to_multiple(hole.to(image.dtype), sides)
        _, refined = self.stages(2.0 * x - 1.0, missing)
        return torch.where(hole, crop((refined + 1.0) / 2.0, height, width), image)
