"""DehazeFormer (Song et al., 2023), state-dict compatible with the published checkpoints.

The constructor's names are those of the published configurations.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ..layers.channel_map import MirroredConv2d
from ..layers.padding import crop, pad_to_multiple
from ..layers.stack import Stack
from .layers import Attention, Block, Double, Fusion, Halve

STAGES = 5
MULTIPLE = 4
"""The map is halved twice."""


class _Projection(nn.Module):
    def __init__(self, inputs: int, outputs: int, *, listed: bool = False) -> None:
        super().__init__()
        convolution = MirroredConv2d(inputs, outputs, 3)
        self.proj: nn.Module = nn.Sequential(convolution) if listed else convolution

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.proj(x)
        return y


class DehazeFormer(nn.Module):
    """DehazeFormer: (B, 3, H, W) to the same, values -1..1, any H and W >= 1.

    Source: Y. Song et al., "Vision Transformers for Single Image Dehazing", 2023.
    """

    def __init__(
        self,
        *,
        window_size: int = 8,
        embed_dims: Sequence[int] = (24, 48, 96, 48, 24),
        mlp_ratios: Sequence[float] = (2.0, 4.0, 4.0, 2.0, 2.0),
        depths: Sequence[int] = (16, 16, 16, 8, 8),
        num_heads: Sequence[int] = (2, 4, 6, 1, 1),
        attn_ratio: Sequence[float] = (0.25, 0.5, 0.75, 0, 0),
        conv_type: Sequence[str | None] = ("DWConv",) * STAGES,
    ) -> None:
        """Build the network; each list has a number for each of five stages.

        Args:
            window_size: Side of a window.
            embed_dims: Channels of the map. Those of the last two are those of the second and the
                first stage.
            mlp_ratios: Hidden over outer width of the MLP.
            depths: Blocks.
            num_heads: Heads of attention.
            attn_ratio: Share of the blocks that attend, the last ones.
            conv_type: Convolutions of the blocks: "DWConv", "Conv", or None.

        Raises:
            ValueError: Arguments that contradict each other.
        """
        super().__init__()
        lists = (embed_dims, mlp_ratios, depths, num_heads, attn_ratio, conv_type)
        if any(len(numbers) != STAGES for numbers in lists):
            raise ValueError(f"expected {STAGES} numbers each, one per stage, got {lists}")
        if list(embed_dims[3:]) != [embed_dims[1], embed_dims[0]]:
            raise ValueError(f"embed_dims {list(embed_dims)} must be symmetric")
        if min(depths) < 1 or min(embed_dims) < 1 or min(mlp_ratios) <= 0:
            raise ValueError("depths, embed_dims and mlp_ratios must be above 0")
        self.window = (window_size, window_size)

        def block(stage: int, index: int) -> Block:
            dim, depth = embed_dims[stage], depths[stage]
            attention = Attention(
                dim,
                num_heads[stage],
                window_size,
                shifted=index % 2 == 1,
                attends=index >= depth - attn_ratio[stage] * depth - 1e-9,
                kind=conv_type[stage],
            )
            return Block(dim, mlp_ratios[stage], attention)

        one, two, three, *_ = embed_dims
        self.patch_embed = _Projection(3, one)
        for stage in range(STAGES):
            blocks = [block(stage, index) for index in range(depths[stage])]
            self.add_module(f"layer{stage + 1}", Stack(blocks))
        self.patch_merge1, self.patch_merge2 = Halve(one, two), Halve(two, three)
        self.skip1, self.skip2 = nn.Conv2d(one, one, 1), nn.Conv2d(two, two, 1)
        self.patch_split1, self.patch_split2 = Double(three, two), Double(two, one)
        self.fusion1, self.fusion2 = Fusion(two), Fusion(one)
        self.patch_unembed = _Projection(one, 4, listed=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the restored image for x (B, 3, H, W), values -1..1."""
        image = pad_to_multiple(x, (MULTIPLE, MULTIPLE))
        first = self._stage(1, self.patch_embed(image))
        second = self._stage(2, self.patch_merge1(first))
        y = self.patch_split1(self._stage(3, self.patch_merge2(second)))
        y = self._stage(4, self.fusion1(y, self.skip2(second)) + y)
        y = self.patch_split2(y)
        y = self._stage(5, self.fusion2(y, self.skip1(first)) + y)
        factor, offset = self.patch_unembed(y).split((1, 3), 1)
        return crop(factor * image - offset + image, x.shape[2], x.shape[3])

    def _stage(self, number: int, x: Tensor) -> Tensor:
        y: Tensor = self.get_submodule(f"layer{number}")(x)
        return y
