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
    ("attention", "activation", "backend"),
    [("eager", "gelu_fast", "ort-cpu"), *full(("sdpa", "gelu", "openvino"))],
)
def test_its_attention_is_found_at_any_size(
    attention: str, activation: str, backend: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    network = Restorer(attention=attention, activation=activation).eval()
    options = ExportOptions(Plan(mechanism("full")), speed=False)
    result = export_module(network, tmp_path / "m.onnx", options)
    assert len(result.source.resolved) == 2
    if backend == "openvino":
        pytest.importorskip("openvino", reason="the extra nystra[openvino] is not installed")
    session = Session(result.model, backend=backend, threads=1)
    for height, width in ((24, 40), (56, 16), (8, 64)):
        image = torch.rand(1, 3, height, width)
        with torch.no_grad():
            expected = network(image).reconstruction
        np.testing.assert_allclose(session(image.numpy()), expected, atol=1e-5)
