"""Tiles and batches of networks of others are measured before a file claims them."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from nystra.core.ports.port import Port
from nystra.export import ExportOptions, ExportResult, export_model, export_module
from nystra.models import OwnNetwork
from nystra.runtime import Session
from one_convolution import OneConvolution

OPTIONS = ExportOptions(speed=False)


class OfPixels(OneConvolution):
    """The image and a little of a convolution: what is far from a pixel does not change it."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + 0.02 * self.conv(x)
        return y


class OfImage(OfPixels):
    """The same and the mean of the image."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x.mean((2, 3), keepdim=True)


class OfBatch(OfPixels):
    """The same and the mean of all images of a batch."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x.mean((0, 2, 3), keepdim=True)


def exported(network: nn.Module, folder: Path, *, as_file: bool) -> ExportResult:
    """Export a network as it is, or a file of it that another program wrote."""
    if not as_file:
        channels = {"channels": 3}
        own = OwnNetwork(
            network.eval(),
            [Port("input", "image", lengths=channels)],
            [Port("output", "picture", lengths=channels)],
        )
        return export_module(own, folder / "m.onnx", OPTIONS)
    axes = {0: "batch", 2: "height", 3: "width"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            network.eval(),
            (torch.rand(2, 3, 32, 40),),
            str(folder / "theirs.onnx"),
            input_names=["input"],
            output_names=["output"],
            dynamic_axes={"input": axes, "output": axes},
            dynamo=False,
        )
    return export_model(folder / "theirs.onnx", folder / "m.onnx", OPTIONS)


@pytest.mark.parametrize("as_file", [False, True], ids=["module", "file"])
def test_tiles_are_claimed_where_they_change_nothing(tmp_path: Path, as_file: bool) -> None:
    result = exported(OfPixels(), tmp_path, as_file=as_file)
    assert Session(result.model).metadata["nystra.tiling"] == "supported"
    assert not any("tiles" in text for text in result.warnings)


@pytest.mark.parametrize("as_file", [False, True], ids=["module", "file"])
def test_tiles_that_change_the_result_are_told(tmp_path: Path, as_file: bool) -> None:
    result = exported(OfImage(), tmp_path, as_file=as_file)
    assert Session(result.model).metadata["nystra.tiling"] == "discouraged"
    assert any("tiles change the result" in text for text in result.warnings)


@pytest.mark.parametrize("as_file", [False, True], ids=["module", "file"])
def test_a_batch_that_mixes_images_is_not_claimed(tmp_path: Path, as_file: bool) -> None:
    network = OfBatch()
    result = exported(network, tmp_path, as_file=as_file)
    (batch, *_) = onnx.load(result.model).graph.input[0].type.tensor_type.shape.dim
    assert batch.dim_value == 1
    image = np.random.default_rng(0).random((1, 3, 40, 50), np.float32)
    with torch.no_grad():
        expected = network(torch.from_numpy(image)).numpy()
    outputs = Session(result.model).run({"input": image})
    np.testing.assert_allclose(outputs["output"], expected, atol=1e-5)


@pytest.mark.parametrize("as_file", [False, True], ids=["module", "file"])
def test_a_batch_of_single_images_stays_free(tmp_path: Path, as_file: bool) -> None:
    result = exported(OfPixels(), tmp_path, as_file=as_file)
    (batch, *_) = onnx.load(result.model).graph.input[0].type.tensor_type.shape.dim
    assert batch.dim_param
