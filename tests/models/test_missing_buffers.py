"""A checkpoint of one's own network that lacks buffers which the code computes, or training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from nystra.core.errors import CheckpointError
from nystra.models import load
from own_code import written

BUFFERS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.register_buffer("relative_index", VALUE)

    def forward(self, image):
        return self.conv(image * self.relative_index.view(-1)[-3:].view(1, 3, 1, 1))
"""


def without_buffers(folder: Path, value: str) -> tuple[Path, str]:
    torch.save(nn.ModuleDict({"conv": nn.Conv2d(3, 3, 1)}).state_dict(), folder / "net.pth")
    code = written(folder, BUFFERS.replace("VALUE", value))
    return folder / "net.pth", f"{code}:Net"


def test_buffers_that_code_computes_may_be_missing(tmp_path: Path) -> None:
    path, code = without_buffers(tmp_path, "torch.arange(9.0)")
    loaded = load(path, module=code)
    assert loaded.warnings == (
        "buffers that the checkpoint lacks are those that the code computes: relative_index",
    )
    assert loaded.network.network.relative_index.tolist() == [*range(9)]


@pytest.mark.parametrize("value", ["torch.rand(9)", "torch.zeros(9)", "torch.ones(9)"])
def test_buffers_that_training_determines_may_not_be_missing(tmp_path: Path, value: str) -> None:
    path, code = without_buffers(tmp_path, value)
    with pytest.raises(CheckpointError, match="1 missing: relative_index"):
        load(path, module=code)
