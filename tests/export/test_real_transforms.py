"""Fourier transforms of real maps of any size."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from nystra.export import ExportOptions, export_module
from nystra.runtime import Session
from one_convolution import OneConvolution


class OfSpectrum(OneConvolution):
    """Raises what is strong in the spectrum: buffers of both lengths are used one after another."""

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft2(x, norm="ortho")
        spectrum = spectrum * (1 + torch.sigmoid(spectrum.abs()))
        y: Tensor = self.conv(torch.fft.irfft2(spectrum, s=x.shape[-2:], norm="ortho"))
        return y


@pytest.mark.full
def test_a_spectrum_of_any_size_exports(tmp_path: Path) -> None:
    network = OfSpectrum().eval()
    session = Session(export_module(network, tmp_path / "m.onnx", ExportOptions(speed=False)).model)
    for shape in ((1, 3, 16, 16), (1, 3, 21, 40), (3, 3, 50, 9)):
        image = torch.rand(*shape)
        with torch.no_grad():
            expected = network(image)
        got = torch.from_numpy(session(image.numpy()))
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=0.0)
