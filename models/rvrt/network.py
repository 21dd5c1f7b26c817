"""RVRT (Liang et al., 2022), state-dict compatible with the published checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...plugins.operators.window_schema import LARGEST_SIDE
from ..layers.padding import crop, pad_to_multiple
from .alignment import GuidedDeformableAttention
from .flow import SpyNet
from .frames import SLOPE, FrameConv, quarter, upsampler
from .propagation import BRANCHES, CLIP, clip_flows, propagate
from .windows import Depth, Stage, Windows

_HEAD_WIDTH = 64
_SHRINK = 4  # of a network whose output is as large as its input


class RVRT(nn.Module):
    """RVRT: (n, t, in_chans, H, W) to (n, t, 3, H * upscale, W * upscale), t even, any H and W.

    Optical flow is computed in both directions for every video. (The published code takes the
    forward flows from the backward ones if the second half of a video is the mirrored first half.)

    Source: J. Liang et al., "Recurrent Video Restoration Transformer with Guided Deformable
    Attention", 2022.
    """

    def __init__(
        self,
        *,
        upscale: int = 4,
        in_chans: int = 3,
        window_size: int | tuple[int, int, int] = 8,
        num_blocks: Sequence[int] = (1, 2, 1),
        depths: Sequence[int] = (2, 2, 2),
        embed_dim: int = 144,
        num_heads: int | Sequence[int] = 6,
        mlp_ratio: float = 2.0,
        inputconv_groups: Sequence[int] = (1, 1, 1, 1, 1, 1),
        deformable_groups: int = 12,
        attention_heads: int = 12,
        position_bias: bool = True,
        mask: bool = True,
    ) -> None:
        """Build the network.

        Args:
            upscale: Output side over input side; at 1 the features have a quarter of the sides.
            in_chans: 3, or 4 where the last channel is the level of the noise in 0..1.
            window_size: Side of the windows, or frames, rows and columns, where frames are 2.
            num_blocks: Groups of blocks of first stage, branches and last stage.
            depths: Blocks of their groups.
            embed_dim: Channels of the features.
            num_heads: Heads of their window attention.
            mlp_ratio: Hidden over outer width of the MLPs.
            inputconv_groups: Groups of the convolution of first stage, branches and last stage.
            deformable_groups: Channel groups of the alignment.
            attention_heads: Heads of the alignment.
            position_bias: Window attention adds a relative position bias.
            mask: Tokens that the cyclic shift made neighbors do not see each other.

        Raises:
            ValueError: Arguments that contradict each other.
        """
        super().__init__()
        rows, columns = _window(window_size)
        heads = [num_heads] * 3 if isinstance(num_heads, int) else list(num_heads)
        if in_chans not in (3, 4):
            raise ValueError(f"in_chans {in_chans}; expected 3, or 4 with a noise level")
        _check(embed_dim, num_blocks, depths, heads, inputconv_groups)
        _check_alignment(embed_dim, attention_heads, deformable_groups)
        self.upscale, self.window = upscale, (CLIP, rows, columns)
        single = (rows, columns), (rows // 2, columns // 2)
        clip = (CLIP, rows, columns), (0, rows // 2, columns // 2)
        hidden = int(embed_dim * mlp_ratio)

        def stage(inputs: int, part: int, place: int) -> Stage:
            window, shift = clip if part == 1 else single
            windows = Windows(heads[part], window, shift, position_bias=position_bias, mask=mask)
            depth = Depth(num_blocks[part], depths[part], hidden)
            return Stage(inputs, embed_dim, depth, windows, conv_groups=inputconv_groups[place])

        self.spynet = SpyNet()
        self.feat_extract: nn.Module
        if upscale == 1:
            halving = _make_halving(in_chans, embed_dim)
            self.feat_extract = nn.Sequential(*halving, stage(embed_dim, 0, 0))
        else:
            self.feat_extract = stage(in_chans, 0, 0)
        self.backbone = nn.ModuleDict(
            {
                name: stage((place + 1) * embed_dim, 1, place)
                for place, name in enumerate(BRANCHES, 1)
            }
        )
        self.deform_align = nn.ModuleDict(
            {
                name: GuidedDeformableAttention(
                    embed_dim, clip=CLIP, heads=attention_heads, groups=deformable_groups
                )
                for name in BRANCHES
            }
        )
        self.reconstruction = stage((1 + len(BRANCHES)) * embed_dim, 2, 5)
        self.conv_before_upsampler = nn.Sequential(
            FrameConv(embed_dim, _HEAD_WIDTH, 1), nn.LeakyReLU(SLOPE)
        )
        self.upsampler = upsampler(_SHRINK if upscale == 1 else upscale, _HEAD_WIDTH)
        self.conv_last = FrameConv(_HEAD_WIDTH, 3)

    @property
    def multiple(self) -> int:
        """The multiple to which sides of frames are padded."""
        return _SHRINK if self.upscale == 1 else 1

    def forward(self, x: Tensor) -> Tensor:
        """Return the restored video for x (n, t, in_chans, H, W), values 0..1.

        Raises:
            ValueError: The number of frames is odd.
        """
        batch, count = x.shape[:2]
        if count % CLIP:
            raise ValueError(f"{count} frames; expected a multiple of {CLIP}, the frames of a clip")
        height, width = x.shape[3], x.shape[4]
        frames = x.flatten(0, 1)
        if self.upscale == 1:
            frames = pad_to_multiple(frames, (_SHRINK, _SHRINK))
        images = frames[:, :3]
        shallow = self._shallow(frames, (batch, count))
        small = quarter(images) if self.upscale == 1 else images
        guides = self._guides(small.unflatten(0, (batch, count)))
        seen = propagate(list(shallow.split(CLIP, 1)), guides, self.backbone, self.deform_align)
        features = torch.cat([torch.cat(clips, 1) for clips in seen], 2)
        residual = self._head(self.reconstruction(features).flatten(0, 1))
        restored = residual + self._enlarge(images)
        if self.upscale == 1:
            restored = crop(restored, height, width)
        video: Tensor = restored.unflatten(0, (batch, count))
        return video

    def _shallow(self, frames: Tensor, leading: tuple[int, int]) -> Tensor:
        """Return the features (n, t, C, h, w) of the first stage."""
        y = frames
        extractor = self.feat_extract
        *convolutions, last = extractor.children() if self.upscale == 1 else (extractor,)
        for layer in convolutions:
            y = layer(y)
        features: Tensor = last(y.unflatten(0, leading))
        return features

    def _guides(self, frames: Tensor) -> dict[str, list[Sequence[Tensor]]]:
        """Return the flows between clips in both directions, for frames (n, t, 3, h, w)."""
        batch, count = frames.shape[:2]
        if count == CLIP:
            return {"forward": [], "backward": []}
        early, late = frames[:, :-1].flatten(0, 1), frames[:, 1:].flatten(0, 1)
        flows = self.spynet(torch.cat((late, early)), torch.cat((early, late)))
        forward, backward = flows.unflatten(0, (2, batch, count - 1)).unbind(0)
        both = clip_flows(torch.cat((forward, backward.flip(1))))
        guides: dict[str, list[Sequence[Tensor]]] = {}
        for place, way in enumerate(("forward", "backward")):
            guides[way] = []
            for guide in both:
                guides[way].append([flow.unflatten(0, (2, batch))[place] for flow in guide])
        return guides

    def _head(self, features: Tensor) -> Tensor:
        y: Tensor = self.conv_last(self.upsampler(self.conv_before_upsampler(features)))
        return y

    def _enlarge(self, images: Tensor) -> Tensor:
        if self.upscale == 1:
            return images
        return F.interpolate(images, scale_factor=float(self.upscale), mode="bilinear")


def _make_halving(channels: int, width: int) -> list[nn.Module]:
    """Return two convolutions that halve the sides, at the places of the published keys."""
    return [
        nn.Identity(),
        FrameConv(channels, width, stride=2),
        nn.LeakyReLU(SLOPE),
        FrameConv(width, width, stride=2),
        nn.LeakyReLU(SLOPE),
        nn.Identity(),
    ]


def _window(size: int | tuple[int, int, int]) -> tuple[int, int]:
    frames, rows, columns = (CLIP, size, size) if isinstance(size, int) else size
    if frames != CLIP or not (1 <= rows <= LARGEST_SIDE and 1 <= columns <= LARGEST_SIDE):
        raise ValueError(
            f"a window of {frames}x{rows}x{columns}; expected {CLIP} frames, and rows and columns "
            f"of 1 to {LARGEST_SIDE}"
        )
    return rows, columns


def _check(
    dim: int,
    groups: Sequence[int],
    depths: Sequence[int],
    heads: Sequence[int],
    conv_groups: Sequence[int],
) -> None:
    if not len(groups) == len(depths) == len(heads) == 3 or len(conv_groups) != 6:
        raise ValueError(
            f"num_blocks {list(groups)}, depths {list(depths)}, num_heads {list(heads)} and "
            f"inputconv_groups {list(conv_groups)}: expected 3 numbers each, and 6 of the last"
        )
    if min(*groups, *depths, *heads, *conv_groups) < 1:
        raise ValueError("num_blocks, depths, heads and groups must be at least 1")
    if any(dim % count for count in heads):
        raise ValueError(f"embed_dim {dim} is not a multiple of num_heads {list(heads)}")


def _check_alignment(dim: int, heads: int, groups: int) -> None:
    if min(heads, groups) < 1:
        raise ValueError(
            f"attention_heads {heads} and deformable_groups {groups} must be 1 or more"
        )
    if 2 * dim % heads:
        raise ValueError(f"twice embed_dim {dim} is not a multiple of attention_heads {heads}")
    if 4 * dim % groups:
        raise ValueError(
            f"{groups} deformable_groups cannot cut the {4 * dim} channels of keys and values, "
            f"4 times embed_dim {dim}"
        )
