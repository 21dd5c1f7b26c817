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
