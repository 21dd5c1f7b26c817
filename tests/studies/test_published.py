"""Published networks have the figures of their authors, and lose little with the defaults."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from later import full, release
from nystra.export import ExportOptions
from nystra.export.attention.cluster.parameters import Cluster
from nystra.export.attention.full.parameters import Full
from nystra.export.attention.plan import Plan
from nystra.export.load.stage import prepare
from nystra.export.plan.settings import DEFAULT_LIMIT
from nystra.models.own.network import OwnNetwork
from shared import shared_path
from studies.published.__main__ import choose_for, read
from studies.quality.measure import ImageSet, measure, with_kernels


@pytest.mark.parametrize(
    ("file", "scale", "psnr", "most"),
    [
        *full(("HPINet-M-x2.pth", 2, 38.206, 0.05)),
        *release(("NTIRE2025_team40_mambairv2light.pth", 4, 32.515, 0.02)),
    ],
)
def test_the_defaults_lose_little(file: str, scale: int, psnr: float, most: float) -> None:
    """The loss of ``--attn cluster`` on Set5, luma, and what the whole network gives there."""
    network = read(shared_path("published", file))
    inputs: Path = shared_path("data", "set5", "LR_bicubic", f"X{scale}")
    images = ImageSet("Set5", inputs, shared_path("data", "set5", "HR"))
    asked = ExportOptions(Plan(Cluster()))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = prepare(OwnNetwork(network), asked, lambda _: None).loaded
        exact = measure(model, with_kernels(model, Full()), images).quality.psnr
        _, chosen = choose_for(model, DEFAULT_LIMIT)
        found = measure(model, chosen, images).quality.psnr
    finally:
        torch.set_num_threads(threads)
    assert abs(exact - psnr) < 0.002
    assert exact - found < most
