"""Functions of lengths that a trace keeps free, against PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nystra.export import ExportOptions, export_module
from nystra.models.sizes.size_functions import FUNCTIONS
from nystra.runtime import Session

_THETA = torch.tensor([[[0.9, 0.2, 0.1], [-0.3, 1.1, -0.2]]])
_THETA_3D = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(0))

CASES: list[tuple[Any, Callable[[int], tuple[Any, ...]], dict[str, Any]]] = [
    (torch.linspace, lambda n: (-1, 1, n), {}),
    (torch.linspace, lambda n: (0.5 / n, 1 - 0.5 / n, n), {"dtype": torch.float64}),
    (torch.linspace, lambda n: (3.0, torch.tensor(-2.0), n), {}),
    (torch.linspace, lambda n: (0, n, n), {"dtype": torch.int64}),
    (torch.logspace, lambda n: (-1, 2, n), {}),
    (torch.logspace, lambda n: (0, 1, n, 2.0), {}),
    (torch.fft.fftfreq, lambda n: (n,), {}),
    (torch.fft.fftfreq, lambda n: (n, 0.25), {"dtype": torch.float64}),
    (torch.fft.rfftfreq, lambda n: (n, 2.0), {}),
    (torch.hann_window, lambda n: (n,), {}),
    (torch.hann_window, lambda n: (n, False), {}),
    (torch.hamming_window, lambda n: (n,), {"periodic": False}),
    (F.affine_grid, lambda n: (_THETA, [1, 3, n + 1, 5]), {"align_corners": True}),
    (F.affine_grid, lambda n: (_THETA, (1, 3, 4, n)), {"align_corners": False}),
    (F.affine_grid, lambda n: (_THETA_3D, (2, 3, 4, n, 6)), {"align_corners": False}),
]


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("length", [1, 2, 3, 8, 101])
def test_values_and_types_are_those_of_pytorch(case: int, length: int) -> None:
    function, arguments, named = CASES[case]
    given = arguments(length)
    expected = function(*given, **named)
    torch.testing.assert_close(FUNCTIONS[function](*given, **named), expected)


class Warped(nn.Module):
    """Samples a map on a grid that subclasses of `GRIDS` make."""

    def __init__(self, grid: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.grid = nn.Conv2d(3, 3, 3, padding=1), grid

    def forward(self, x: Tensor) -> Tensor:
        places = self.grid(x).expand(x.shape[0], -1, -1, -1)
        return F.grid_sample(self.conv(x), places, padding_mode="border", align_corners=True)


def _of_lines(line: Any, x: Tensor) -> Tensor:
    rows, columns = line(x.shape[2]), line(x.shape[3])
    return torch.stack(torch.meshgrid(columns, rows, indexing="xy"), -1)[None]


GRIDS: dict[str, Callable[[Tensor], Tensor]] = {
    "linspace": partial(_of_lines, lambda n: torch.linspace(-0.9, 1, steps=n)),
    "centres": partial(_of_lines, lambda n: torch.linspace(1 / n - 1, 1 - 1 / n, n)),
    "logspace": partial(_of_lines, lambda n: torch.logspace(-1, 0, n) - 0.3),
    "affine": lambda x: F.affine_grid(_THETA, [1, *x.shape[1:]], align_corners=False),
    "affine of features": lambda x: F.affine_grid(
        _THETA + x.mean((2, 3))[:1, :2, None], (1, 1, *x.shape[2:]), align_corners=False
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_of_any_size_exports(name: str, tmp_path: Path) -> None:
    network = Warped(GRIDS[name]).eval()
    own = {"batch": 1} if name == "affine of features" else {}
    session = Session(export_module(network, tmp_path / "m.onnx", ExportOptions(speed=False)).model)
    for shape in ((1, 3, 16, 16), (1, 3, 21, 40), (1, 3, 50, 9), (2, 3, 9, 8))[: 3 if own else 4]:
        image = torch.rand(*shape)
        with torch.no_grad():
            expected = network(image)
        got = torch.from_numpy(session(image.numpy()))
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=0.0)
