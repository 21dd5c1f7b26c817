"""Uformer (Wang et al., 2022), state-dict compatible with the published checkpoints.

The constructor's names are those of the published configurations but for ``window_size``, which
every network of nystra calls so (``win_size`` there). Two arguments are new:
``position_bias=False`` and ``mask=False`` give the form that PnP-Nystra runs at large windows.

The published network takes squares, and its scripts pad images with black on all sides. This one
works on rows by columns and mirrors the image at its border: no window has a black border, and
nothing is computed to make a square. On a square of the multiple both are equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from ..geometry import WindowGeometry
from ..layers.mlp import Mlp
from ..layers.padding import crop, pad_to_multiple
from ..layers.stack import Stack
from ..layers.window_sides import Sides, both_sides
from .layers import (
    Block,
    Downsample,
    InputProjection,
    Leff,
    OutputProjection,
    Upsample,
    WindowAttention,
)

LEVELS = (0, 1, 2, 3, 4, 3, 2, 1, 0)
"""Number of times the map of each stage is halved: four encoder stages, the bottleneck, four
decoder stages."""

STAGE_NAMES = (
    *(f"encoderlayer_{index}" for index in range(4)),
    "conv",
    *(f"decoderlayer_{index}" for index in range(4)),
)


class Uformer(nn.Module):
    """Uformer: (B, dd_in, H, W) to (B, in_chans, H, W), any H and W >= 1.

    Source: Z. Wang et al., "Uformer: A General U-Shaped Transformer for Image Restoration", 2022.
    """

    def __init__(
        self,
        *,
        img_size: int = 128,
        in_chans: int = 3,
        dd_in: int = 3,
        embed_dim: int = 32,
        depths: Sequence[int] = (2,) * len(LEVELS),
        num_heads: int | Sequence[int] = (1, 2, 4, 8, 16, 16, 8, 4, 2),
        window_size: int | tuple[int, int] = 8,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        qk_scale: float | None = None,
        token_projection: Literal["linear"] = "linear",
        token_mlp: Literal["leff", "fastleff", "ffn", "mlp"] = "leff",
        shift_flag: bool = True,
        modulator: bool = False,
        position_bias: bool = True,
        mask: bool = True,
    ) -> None:
        """Build the network.

        Args:
            img_size: Side of the training images. A stage whose map of one is not above the
                window has that map as window and no shift, for images of every size.
            in_chans: Channels of the output.
            dd_in: Channels of the input. With 3, the network computes what is added to it.
            embed_dim: Channels of the first map.
            depths: Blocks of each stage, the decoder's those of the encoder in reverse.
            num_heads: Heads of each stage; one number is of all.
            window_size: Window, a side or rows and columns.
            mlp_ratio: Hidden over outer width of the feed-forward.
            qkv_bias: The projections to query, key and value have a bias.
            qk_scale: Factor of the scores; None is head size ** -0.5.
            token_projection: "linear"; the published "conv" does not run.
            token_mlp: "leff", or "ffn" without convolution; "fastleff" and "mlp" are other names.
            shift_flag: Every second block shifts its windows by half.
            modulator: Blocks of the decoder add a trained vector for each place of a window.
            position_bias: Attention adds a relative position bias.
            mask: Tokens that the cyclic shift made neighbors do not see each other.

        Raises:
            ValueError: Arguments that contradict each other.
        """
        super().__init__()
        heads_of = [num_heads] * len(LEVELS) if isinstance(num_heads, int) else list(num_heads)
        _check_stages(depths, heads_of)
        _check_widths(dd_in, in_chans, embed_dim, mlp_ratio)
        self.window = both_sides(window_size)
        self.residual = dd_in == 3
        windows = [stage_window(self.window, img_size, level) for level in range(5)]
        self.multiple = _multiple(windows, 0), _multiple(windows, 1)
        widths = [embed_dim << level for level in range(5)]
        widths += [2 * width for width in reversed(widths[:4])]

        def block(stage: int, odd: bool) -> Block:
            width, heads = widths[stage], heads_of[stage]
            window, shifted = windows[LEVELS[stage]]
            shift = (window[0] // 2, window[1] // 2) if odd and shift_flag and shifted else (0, 0)
            geometry = _geometry(width, heads, window, shift, mask=mask, qk_scale=qk_scale)
            attention = WindowAttention(
                width, geometry, qkv_bias=qkv_bias, position_bias=position_bias
            )
            feed_forward = Leff if token_mlp in ("leff", "fastleff") else Mlp
            hidden = int(width * mlp_ratio)
            return Block(width, attention, feed_forward(width, hidden), modulator and stage > 4)

        if modulator and windows[3][0] != self.window:
            raise ValueError(
                f"img_size {img_size} leaves no whole window {self.window[0]}x{self.window[1]} to "
                "the modulators of the decoder: it must be 8 windows at least"
            )
        self.input_proj = InputProjection(dd_in, embed_dim)
        for stage, name in enumerate(STAGE_NAMES):
            blocks = [block(stage, index % 2 == 1) for index in range(depths[stage])]
            self.add_module(name, Stack(blocks))
        for level, (inputs, outputs) in enumerate(pairwise(widths[:5])):
            self.add_module(f"dowsample_{level}", Downsample(inputs, outputs))
        for index, stage in enumerate(range(5, 9)):
            self.add_module(f"upsample_{index}", Upsample(widths[stage - 1], widths[stage] // 2))
        self.output_proj = OutputProjection(widths[-1], in_chans)

    def forward(self, x: Tensor) -> Tensor:
        """Return the restored image for x (B, dd_in, H, W), values 0..1."""
        image = pad_to_multiple(x, self.multiple)
        y = self.input_proj(image)
        skipped = []
        for level in range(4):
            y = self.get_submodule(f"encoderlayer_{level}")(y)
            skipped.append(y)
            y = self.get_submodule(f"dowsample_{level}")(y)
        y = self.get_submodule("conv")(y)
        for index in range(4):
            y = torch.cat([self.get_submodule(f"upsample_{index}")(y), skipped.pop()], dim=-1)
            y = self.get_submodule(f"decoderlayer_{index}")(y)
        y = self.output_proj(y)
        return crop(image + y if self.residual else y, x.shape[2], x.shape[3])


def stage_window(window: Sides, img_size: int, level: int) -> tuple[Sides, bool]:
    """Return the window of the stages after a number of halvings, and whether it is shifted.

    Raises:
        ValueError: The map of a training image is empty there.
    """
    side = img_size >> level
    if side < 1:
        raise ValueError(f"img_size {img_size} must be 16 at least: it is halved four times")
    return (window, True) if side > min(window) else ((side, side), False)


def _multiple(windows: Sequence[tuple[Sides, bool]], axis: int) -> int:
    """Return what a side of the image must be a multiple of: whole windows at every level."""
    return math.lcm(*(window[axis] << level for level, (window, _) in enumerate(windows)))


def _geometry(
    width: int, heads: int, window: Sides, shift: Sides, *, mask: bool, qk_scale: float | None
) -> WindowGeometry:
    if width % heads:
        raise ValueError(f"{width} channels are not a multiple of {heads} heads")
    return WindowGeometry(
        heads=heads,
        head_dim=width // heads,
        value_dim=width // heads,
        window=window,
        shift=shift,
        masked=mask and shift != (0, 0),
        scale=(width // heads) ** -0.5 if qk_scale is None else qk_scale,
    )


def _check_widths(inputs: int, outputs: int, embed_dim: int, mlp_ratio: float) -> None:
    if inputs == 3 != outputs:
        raise ValueError(
            f"an input of 3 channels is added to the output, which cannot have {outputs}"
        )
    if embed_dim < 1 or mlp_ratio <= 0:
        raise ValueError(f"embed_dim {embed_dim} and mlp_ratio {mlp_ratio} must be above 0")


def _check_stages(depths: Sequence[int], heads: Sequence[int]) -> None:
    if len(depths) != len(LEVELS) or len(heads) != len(LEVELS):
        raise ValueError(
            f"depths {list(depths)} and num_heads {list(heads)} must have {len(LEVELS)} numbers: "
            "four of the encoder, the bottleneck, four of the decoder"
        )
    if min(depths) < 1 or min(heads) < 1:
        raise ValueError(f"depths {list(depths)} and num_heads {list(heads)} must be at least 1")
    if list(depths) != list(reversed(depths)):
        raise ValueError(
            f"depths {list(depths)} must be symmetric: the published network is built of no others"
        )
