"""Networks in the form of those of transformers."""

from pathlib import Path

import numpy as np
import pytest
import torch

from hub_network import Restorer
from later import full
from nystra.export import ExportOptions, Plan, export_module, mechanism
from nystra.runtime import Session


@pytest.mark.parametrize(
    ("attention", "activation"), [("eager", "gelu_fast"), *full(("sdpa", "gelu"))]
)
def test_its_attention_is_found_at_any_size(
    attention: str, activation: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    network = Restorer(attention=attention, activation=activation).eval()
    options = ExportOptions(Plan(mechanism("full")), speed=False)
    result = export_module(network, tmp_path / "m.onnx", options)
    assert len(result.source.resolved) == 2
    image = torch.rand(1, 3, 24, 40)
    with torch.no_grad():
        expected = network(image).reconstruction
    got = Session(result.model, backend="ort-cpu", threads=1)(image.numpy())
    np.testing.assert_allclose(got, expected, atol=1e-5)
