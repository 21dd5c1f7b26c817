"""Guided deformable attention, which aligns the previous clip with the current one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..layers.mlp import Mlp
from .deform import deformable_attention
from .frames import SLOPE, FrameConv
from .sampling import flow_warp

_REACH = 10.0  # pixels by which a sample may depart from the flow
_HIDDEN = 64
TAPS = 3
"""Side of the square of taps around a pixel."""


class GuidedDeformableAttention(nn.Module):
    """Attention to the previous clip, at positions from optical flow and learned offsets.

    Source: J. Liang et al., "Recurrent Video Restoration Transformer with Guided Deformable
    Attention", 2022, section 3.3.
    """

    def __init__(self, dim: int, *, clip: int, heads: int, groups: int) -> None:
        """Build the layers.

        Args:
            dim: Channels of a frame; attention is between twice as many.
            clip: Frames of a clip.
            heads: Heads of attention.
            groups: Channel groups of keys and values that have offsets of their own.
        """
        super().__init__()
        self.heads, self.groups = heads, groups
        widths = [dim * 3 + 2 * clip, *[_HIDDEN] * 5, clip * groups * TAPS**2 * 2]
        sides = [1, 3, 3, 3, 3, 1]
        layers: list[nn.Module] = []
        for inputs, outputs, side in zip(widths[:-1], widths[1:], sides, strict=True):
            layers += [FrameConv(inputs, outputs, side), nn.LeakyReLU(SLOPE)]
        self.conv_offset = nn.Sequential(*layers[:-1])
        self.proj_q, self.proj_k, self.proj_v = (
            nn.Sequential(nn.Identity(), nn.Linear(dim, 2 * dim)) for _ in range(3)
        )
        self.proj = nn.Sequential(nn.Identity(), nn.Linear(2 * dim, dim))
        self.mlp = nn.Sequential(nn.Identity(), Mlp(dim, 2 * dim))

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, same: Tensor, crossed: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the aligned clip (n, t, C, H, W) and the flows corrected by the offsets.

        Args:
            q: Features of the current clip (n, t, C, H, W).
            k: Features of the previous clip for the keys.
            v: Features of the previous clip that are aligned.
            same: The flow (n, t, 2, H, W), columns and rows, from each frame to the one at the same
                position in the previous clip.
            crossed: The flow from each frame to the other one.
        """
        warped = [_warp(*pair) for pair in ((v, same), (v.flip(1), crossed))]
        aligned, (same, crossed) = self.align(q, k, v, warped, (same, crossed))
        return aligned, same, crossed

    def align(
        self, q: Tensor, k: Tensor, v: Tensor, warped: Sequence[Tensor], flows: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the same with v warped already.

        Args:
            q: As `forward` takes it.
            k: As `forward` takes it.
            v: As `forward` takes it.
            warped: v, warped by each of the flows.
            flows: A flow (n, t, 2, H, W) for each slot.
        """
        batch, clip = q.shape[0], q.shape[1]
        features = torch.cat((q, *warped, *flows), 2).flatten(0, 1)
        residue = _REACH * self.conv_offset(features).tanh()
        residue = residue.unflatten(0, (batch, clip)).unflatten(2, (clip, -1, 2))
        guide = torch.stack([flow.flip(2) for flow in flows], 2).unsqueeze(3)
        offset = residue + guide  # (n, t, slot, group and tap, rows and columns, H, W)
        queries, keys, values = (
            projection(feature.permute(0, 1, 3, 4, 2))
            for projection, feature in ((self.proj_q, q), (self.proj_k, k), (self.proj_v, v))
        )
        attended = deformable_attention(
            queries,
            keys,
            values,
            offset.flatten(2, 4),
            heads=self.heads,
            groups=self.groups,
            side=TAPS,
        )
        aligned = self.proj(attended)
        aligned = aligned + self.mlp(aligned)
        updated = offset.mean(3).flip(3)
        return aligned.permute(0, 1, 4, 2, 3), list(updated.unbind(2))


def _warp(clip: Tensor, flow: Tensor) -> Tensor:
    frames = flow_warp(clip.flatten(0, 1), flow.flatten(0, 1))
    warped: Tensor = frames.unflatten(0, clip.shape[:2])
    return warped
