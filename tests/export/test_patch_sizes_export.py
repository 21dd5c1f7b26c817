"""A network of patches that a trace treats apart where there is only one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nystra.core.errors import NystraError
from nystra.export import ExportOptions, Plan, export_module, mechanism
from nystra.runtime import Session


class OfSeveralPatches(nn.Module):
    """Attention of patches of 14 pixels, with other code for a side of one patch."""

    def __init__(self) -> None:
        super().__init__()
        self.cut, self.back = nn.Conv2d(3, 16, 14, 14), nn.ConvTranspose2d(16, 3, 14, 14)

    def forward(self, image: Tensor) -> Tensor:
        map_ = self.cut(image)
        if map_.shape[2] == 1 or map_.shape[3] == 1:
            return self.back(map_ * 2)
        heads = map_.flatten(2).mT[:, None]
        out = F.scaled_dot_product_attention(heads, heads, heads)[:, 0]
        return self.back(out.mT.unflatten(2, map_.shape[2:]))


@pytest.mark.full
def test_a_range_starts_above_one_patch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    options = ExportOptions(plan=Plan(mechanism("full")), speed=False)
    result = export_module(OfSeveralPatches(), tmp_path / "patches.onnx", options)
    assert "its file takes sides of at least 15 pixels" in result.warnings
    with pytest.raises(NystraError, match="expected sides of at least 15 pixels"):
        Session(result.model).run({"input": np.zeros((1, 3, 14, 28), np.float32)})


class OfTable(nn.Module):
    """Takes positions of a table, which is long enough for sides of up to 160 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.cut, self.rows = nn.Conv2d(3, 3, 1), nn.Parameter(torch.rand(160))

    def forward(self, image: Tensor) -> Tensor:
        return self.cut(image) + self.rows[torch.arange(image.shape[2])][:, None]


@pytest.mark.full
def test_a_stated_size_that_the_network_does_not_take(tmp_path: Path) -> None:
    """A trace does not compute: the error of the network was raw."""
    options = ExportOptions(static=(1, 3, 224, 224), speed=False)
    with pytest.raises(NystraError, match="the network fails at 224x224: index 160 is out of"):
        export_module(OfTable(), tmp_path / "table.onnx", options)
