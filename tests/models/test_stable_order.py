"""Equal values keep their order where PyTorch leaves it open, as in ATD's sort of categories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from exports import export_session
from nystra.models.sizes.plain_run import run_plainly
from one_convolution import OneConvolution

VALUES = torch.arange(4096).flip(0) % 16
"""An unstable sort changes the order of these on processors with wide vectors."""

RISING = np.argsort(VALUES.numpy(), kind="stable")
FALLING = np.argsort(-VALUES.numpy(), kind="stable")


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        (lambda x: torch.sort(x, dim=-1, stable=False).indices, RISING),
        (lambda x: x.sort(0, True).indices, FALLING),
        (lambda x: torch.argsort(x, descending=True), FALLING),
        (lambda x: x.argsort(-1), RISING),
        (lambda x: torch.topk(x, 300).indices, FALLING[:300]),
        (lambda x: x.topk(k=300, dim=0, largest=False).indices, RISING[:300]),
    ],
)
def test_equal_values_keep_their_order(
    sort: Callable[[Tensor], Tensor], expected: np.ndarray
) -> None:
    with run_plainly():
        got = sort(VALUES)
    assert np.array_equal(got.numpy(), expected)


class Groups(OneConvolution):
    """Pixels of one category follow each other; a mean of neighbors in this order is added."""

    def forward(self, x: Tensor) -> Tensor:
        pixels = self.conv(x).flatten(2)
        order = pixels.argmax(1).argsort(-1)[:, None].expand_as(pixels)
        sorted_pixels = pixels.gather(2, order)
        means = (sorted_pixels + sorted_pixels.roll(1, 2)) / 2
        return x + torch.zeros_like(pixels).scatter(2, order, means).view_as(x)


@pytest.mark.full
def test_networks_that_sort_export_for_any_size(tmp_path: Path) -> None:
    session = export_session(Groups(), tmp_path)
    image = torch.rand(2, 3, 41, 23)
    with run_plainly(), torch.no_grad():
        expected = Groups()(image).numpy()
    assert np.abs(session(image.numpy()) - expected).max() < 1e-5
