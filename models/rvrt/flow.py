"""Optical flow (SpyNet: Ranjan and Black, 2017), as a part of RVRT and of its checkpoints."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .sampling import flow_warp

_LEVELS = 6
_MULTIPLE = 1 << (_LEVELS - 1)  # of the frames' sides, so that every level halves them
_WIDTHS = (8, 32, 64, 32, 16, 2)
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


def _enlarge(side: int) -> int:
    return (side + _MULTIPLE - 1) // _MULTIPLE * _MULTIPLE


class _Level(nn.Module):
    """Reference, warped frame and flow (B, 8, H, W) to what is added to the flow (B, 2, H, W)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(_WIDTHS):
            layers += [nn.Conv2d(inputs, outputs, 7, 1, 3), nn.ReLU()]
        self.basic_module = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        residue: Tensor = self.basic_module(x)
        return residue


class SpyNet(nn.Module):
    """Two frames (B, 3, H, W) in 0..1 to the flow (B, 2, H, W) from the first to the second.

    The flow is in pixels: columns, then rows. Sides of 1 pixel and more are supported; the
    published code needs more than 32.
    """

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.basic_module = nn.ModuleList(_Level() for _ in range(_LEVELS))
        self.register_buffer("mean", torch.tensor(_MEAN).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(_STD).view(1, 3, 1, 1))

    def forward(self, reference: Tensor, other: Tensor) -> Tensor:
        """Return the flow that warps ``other`` to ``reference``."""
        sides = (reference.shape[2], reference.shape[3])
        return resize_flow(self.levels(reference, other)[-1], *sides)

    def levels(self, reference: Tensor, other: Tensor) -> list[Tensor]:
        """Return the flow at every level, coarsest first: of the frames enlarged to n times 32."""
        size = (_enlarge(reference.shape[2]), _enlarge(reference.shape[3]))
        pyramids = [
            [(F.interpolate(frame, size, mode="bilinear") - self.mean) / self.std]
            for frame in (reference, other)
        ]
        for pyramid in pyramids:
            for _ in range(_LEVELS - 1):
                pyramid.append(F.avg_pool2d(pyramid[-1], 2))
        flows: list[Tensor] = []
        steps = zip(self.basic_module, *(reversed(pyramid) for pyramid in pyramids), strict=True)
        for level, frame, source in steps:
            if flows:
                flow = 2 * F.interpolate(
                    flows[-1], scale_factor=2.0, mode="bilinear", align_corners=True
                )
            else:
                flow = torch.zeros_like(frame[:, :2])
            warped = flow_warp(source, flow, border=True)
            flows.append(flow + level(torch.cat((frame, warped, flow), 1)))
        return flows


def resize_flow(flow: Tensor, height: int, width: int) -> Tensor:
    """Return a flow (B, 2, H, W) at another size, in pixels of that size."""
    resized = F.interpolate(flow, (height, width), mode="bilinear")
    sides = [
        torch.full((1, 1, 1, 1), side, dtype=flow.dtype, device=flow.device)
        for side in (width, height, flow.shape[3], flow.shape[2])
    ]
    return resized * (torch.cat(sides[:2], 1) / torch.cat(sides[2:], 1))
