"""Adding a network is one folder and one row: it loads, exports, is checked, and runs."""

from pathlib import Path

import numpy as np
import pytest
import torch

from nystra.cli.main import main
from nystra.models import load
from nystra.runtime import Session
from toy_network import add_toy_network


@pytest.mark.full
def test_a_folder_and_a_row_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = add_toy_network(tmp_path, monkeypatch)
    loaded = load(checkpoint)
    assert (loaded.facts.architecture, loaded.hyper) == ("toy", {"width": 4})
    model = tmp_path / "toy.onnx"
    options = ["--attn", "full", "--precision", "fp16", "--no-speed", "--quiet"]
    assert main(["export", str(checkpoint), *options, "-o", str(model)]) == 0
    image = np.random.default_rng(0).random((1, 3, 9, 14), np.float32)
    with torch.no_grad():
        want = loaded.network(torch.from_numpy(image)).numpy()
    np.testing.assert_allclose(Session(model, backend="ort-cpu")(image), want, atol=0.01)
    assert main(["inspect", str(model)]) == 0
