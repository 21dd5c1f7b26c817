"""Norms over an image: right for images of one color, where the rounding of a mean shows."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from later import one_in
from nystra.export import ExportOptions, export_module
from nystra.runtime import Session


class ChannelNorm(nn.Module):
    """A norm over the channels whose gain has three axes, with or without its mean."""

    def __init__(self, *, centered: bool) -> None:
        super().__init__()
        self.centered, self.gain = centered, nn.Parameter(torch.rand(8, 1, 1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        if self.centered:
            x = x - x.mean(1, keepdim=True)
        return x * (x.square().mean(1, keepdim=True) + 1e-6).rsqrt() * self.gain


NORMS = {
    "groups": lambda: nn.GroupNorm(2, 8),
    "instance": lambda: nn.InstanceNorm2d(8),
    "affine": lambda: nn.InstanceNorm2d(8, affine=True),
    "batch": lambda: nn.BatchNorm2d(8, track_running_stats=False),
    "channels": lambda: ChannelNorm(centered=True),
    "root mean square": lambda: ChannelNorm(centered=False),
}


@pytest.mark.parametrize("name", one_in(6, NORMS))
def test_images_of_one_color(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    first, last = (nn.Conv2d(*channels, 3, padding=1) for channels in ((3, 8), (8, 3)))
    network = nn.Sequential(first, NORMS[name](), last).eval()
    double = copy.deepcopy(network).double()
    model = export_module(network, tmp_path / "m.onnx", ExportOptions(speed=False)).model
    session = Session(model)
    for value in (0.0, 0.3, 1.0):
        image = torch.full((1, 3, 133, 141), value)
        with torch.no_grad():
            expected = double(image.double()).numpy()
        allowed = 1e-4 * np.abs(expected).max()
        np.testing.assert_allclose(session(image.numpy()), expected, rtol=0, atol=allowed)
