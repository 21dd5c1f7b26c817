"""HAT (Chen et al., 2023), state-dict compatible with the published checkpoints.

The constructor's names are those of the published configurations. As in SwinIR here, two arguments
are new: ``position_bias`` and ``mask``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..layers.image_network import ImageNetwork, check_sizes
from ..layers.swin import (
    ResidualGroup,
    WindowAttention,
    each_group,
    residual_convolution,
    window_geometry,
)
from ..layers.window_sides import both_sides
from .layers import ConvBlock, HybridBlock, OverlapBlock


class HAT(ImageNetwork):
    """HAT: (B, in_chans, H, W) to (B, in_chans, H * upscale, W * upscale), any H and W >= 1.

    Source: X. Chen et al., "Activating More Pixels in Image Super-Resolution Transformer", 2023.
    """

    def __init__(
        self,
        *,
        upscale: int = 4,
        in_chans: int = 3,
        img_size: int | tuple[int, int] | None = None,
        window_size: int | tuple[int, int] = 16,
        compress_ratio: int = 3,
        squeeze_factor: int = 30,
        conv_scale: float = 0.01,
        overlap_ratio: float = 0.5,
        img_range: float = 1.0,
        depths: Sequence[int] = (6, 6, 6, 6, 6, 6),
        embed_dim: int = 180,
        num_heads: int | Sequence[int] = 6,
        mlp_ratio: float = 2.0,
        upsampler: str = "pixelshuffle",
        resi_connection: str = "1conv",
        qkv_bias: bool = True,
        qk_scale: float | None = None,
        patch_norm: bool = True,
        ape: bool = False,
        position_bias: bool = True,
        mask: bool = True,
    ) -> None:
        """Build the network.

        Args:
            upscale: Output side over input side.
            in_chans: Channels of input and output.
            img_size: Side or (rows, columns) of the training images, larger than the window;
                read with ``ape`` only.
            window_size: Window, a side or rows and columns.
            compress_ratio: Channels of the map over those between the two convolutions of a block.
            squeeze_factor: Channels of the map over those inside channel attention.
            conv_scale: What the convolutions of a block count next to its attention.
            overlap_ratio: By how much of its side the key window of overlapping attention
                extends beyond a window, both sides together.
            img_range: The network works on (x - mean) * img_range.
            depths: Blocks of each residual group.
            embed_dim: Channels of the map.
            num_heads: Heads of each residual group; one number is of all.
            mlp_ratio: Hidden over outer width of the MLP.
            upsampler: "pixelshuffle"; or, in no published network, another one of SwinIR's.
            resi_connection: "1conv" or "identity".
            qkv_bias: The qkv projections have a bias.
            qk_scale: Factor of the scores; None is head size ** -0.5.
            patch_norm: A LayerNorm follows the first convolution.
            ape: Absolute position embedding; the padded input must then be img_size.
            position_bias: Attention adds a relative position bias.
            mask: Tokens that the cyclic shift made neighbors do not see each other.

        Raises:
            ValueError: Arguments that contradict each other.
        """
        heads_of = each_group(num_heads, len(depths))
        check_sizes(embed_dim, depths, heads_of, upscale, mlp_ratio, img_range)
        for name, value in (("compress_ratio", compress_ratio), ("squeeze_factor", squeeze_factor)):
            if not 1 <= value <= embed_dim:
                raise ValueError(f"{name} {value} is not within 1 to embed_dim, {embed_dim}")
        window = both_sides(window_size)
        size = None if img_size is None else both_sides(img_size)
        if size is not None and min(size) <= min(window):
            raise ValueError(f"img_size {img_size} must be larger than the window, {window_size}")
        half = (window[0] // 2, window[1] // 2)
        margin = (_margin(window[0], overlap_ratio), _margin(window[1], overlap_ratio))
        hidden = int(embed_dim * mlp_ratio)
        bias = {"qkv_bias": qkv_bias, "position_bias": position_bias}

        def block(heads: int, odd: bool) -> HybridBlock:
            shift = half if odd else (0, 0)
            cut = window_geometry(
                embed_dim, heads, window, shift=shift, mask=mask, qk_scale=qk_scale
            )
            convolutions = ConvBlock(embed_dim, compress_ratio, squeeze_factor, conv_scale)
            attention = WindowAttention(embed_dim, cut, **bias)
            return HybridBlock(embed_dim, hidden, attention, convolutions)

        def group(depth: int, heads: int) -> ResidualGroup:
            blocks = [block(heads, index % 2 == 1) for index in range(depth)]
            geometry = window_geometry(embed_dim, heads, window, qk_scale=qk_scale, margin=margin)
            overlap = OverlapBlock(embed_dim, geometry, hidden, **bias)
            return ResidualGroup(blocks, residual_convolution(embed_dim, resi_connection), overlap)

        super().__init__(
            lambda: map(group, depths, heads_of),
            dim=embed_dim,
            in_chans=in_chans,
            window=window,
            size=size,
            upscale=upscale,
            upsampler=upsampler,
            img_range=img_range,
            connection=resi_connection,
            patch_norm=patch_norm,
            ape=ape,
        )


def _margin(side: int, overlap_ratio: float) -> int:
    both = int(side * overlap_ratio + 1e-9)  # 7 * (3 / 7) is 3
    if both % 2 or not 0 <= both <= side:
        raise ValueError(
            f"overlap_ratio {overlap_ratio} of a window of {side} is {both} tokens; expected an "
            f"even number within 0 to {side}"
        )
    return both // 2
