"""SwinIR (Liang et al., 2021), state-dict compatible with the published checkpoints.

The constructor's names are those of the published configurations. Two arguments are new:
``position_bias=False`` and ``mask=False`` give the form that PnP-Nystra runs at large windows.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..layers.image_network import ImageNetwork, check_sizes
from ..layers.swin import (
    Block,
    ResidualGroup,
    WindowAttention,
    each_group,
    residual_convolution,
    window_geometry,
)
from ..layers.window_sides import both_sides


class SwinIR(ImageNetwork):
    """SwinIR: (B, in_chans, H, W) to (B, in_chans, H * upscale, W * upscale), any H and W >= 1.

    Source: J. Liang et al., "SwinIR: Image Restoration Using Swin Transformer", 2021.
    """

    def __init__(
        self,
        *,
        upscale: int = 1,
        in_chans: int = 3,
        img_size: int | tuple[int, int] | None = None,
        window_size: int | tuple[int, int] = 8,
        img_range: float = 1.0,
        depths: Sequence[int] = (6, 6, 6, 6),
        embed_dim: int = 60,
        num_heads: int | Sequence[int] = 6,
        mlp_ratio: float = 2.0,
        upsampler: str = "",
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
            img_size: Side or (rows, columns) of the training images. A side not above the
                window shrinks the window to it and removes every shift, as published;
                None leaves window and shift alone.
            window_size: Window, a side or rows and columns.
            img_range: The network works on (x - mean) * img_range.
            depths: Blocks of each residual group.
            embed_dim: Channels of the map.
            num_heads: Heads of each residual group; one number is of all.
            mlp_ratio: Hidden over outer width of the MLP.
            upsampler: "pixelshuffle", "pixelshuffledirect", "nearest+conv" or "".
            resi_connection: "1conv" or "3conv".
            qkv_bias: The qkv projection has a bias.
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
        window = both_sides(window_size)
        size = None if img_size is None else both_sides(img_size)
        shifted = size is None or min(size) > min(window)
        if size is not None and not shifted:
            window = (min(size), min(size))
        half = (window[0] // 2, window[1] // 2)

        def block(heads: int, odd: bool) -> Block:
            shift = half if odd and shifted else (0, 0)
            cut = window_geometry(
                embed_dim, heads, window, shift=shift, mask=mask, qk_scale=qk_scale
            )
            attention = WindowAttention(
                embed_dim, cut, qkv_bias=qkv_bias, position_bias=position_bias
            )
            return Block(embed_dim, int(embed_dim * mlp_ratio), attention)

        def group(depth: int, heads: int) -> ResidualGroup:
            blocks = [block(heads, index % 2 == 1) for index in range(depth)]
            return ResidualGroup(blocks, residual_convolution(embed_dim, resi_connection))

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
