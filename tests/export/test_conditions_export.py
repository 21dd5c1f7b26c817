"""Whole exports of networks with a step and tokens beside the image."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nystra.export import ExportOptions, Plan, export_module, mechanism
from nystra.runtime import Session


class Conditional(nn.Module):
    """Patches that attend to each other, then to tokens, scaled by a step."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embed, self.back = nn.Linear(12, width), nn.Linear(width, 12)
        self.qkv, self.query = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.keys, self.step = nn.Linear(24, 2 * width), nn.Linear(1, width)

    def forward(self, image: Tensor, step: Tensor, text: Tensor) -> Tensor:
        y = F.pixel_unshuffle(image, 2)
        rows, columns = y.shape[2:]
        y = self.embed(y.flatten(2).transpose(1, 2)) * (1 + self.step(step[:, None]))[:, None]
        q, k, v = self.qkv(y).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        y = y + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        k, v = self.keys(text).unflatten(-1, (2, 2, -1)).permute(2, 0, 3, 1, 4)
        q = self.query(y).unflatten(-1, (2, -1)).transpose(1, 2)
        y = y + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        y = self.back(y).transpose(1, 2).unflatten(2, (rows, columns))
        return image + F.pixel_shuffle(y, 2)


@pytest.mark.full
@pytest.mark.parametrize("name", ["as_trained", "full", "nystra", "cluster"])
def test_a_step_and_tokens(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = Conditional().eval()
    path = tmp_path / "conditional.onnx"
    options = ExportOptions(Plan(mechanism(name)), speed=False)
    result = export_module(network, path, options)
    assert "text as a list of tokens of 24 numbers" in " ".join(result.warnings)
    found = [chosen.name for chosen in result.source.resolved.values()]
    assert found == [name] * (name != "as_trained") * 2  # the keys of the second are of any number
    session = Session(path, threads=1)
    ports = {port.name: port for port in session.facts.inputs}
    assert [port.role for port in ports.values()] == ["image", "condition", "condition"]
    assert (ports["step"].axes, ports["text"].lengths) == (("batch",), {"classes": 24})
    random = np.random.default_rng(0)
    for batch, sides, tokens in ((1, (12, 16), 3), (2, (18, 10), 11)):
        feeds = [random.random((batch, 3, *sides)), random.random(batch)]
        feeds += [random.random((batch, tokens, 24))]
        feeds = [array.astype(np.float32) for array in feeds]
        got = session.run(dict(zip(ports, feeds, strict=True)))["output"]
        with torch.no_grad():
            expected = network(*map(torch.from_numpy, feeds)).numpy()
        limit = 1e-5 if name in ("as_trained", "full") else 0.1
        np.testing.assert_allclose(got, expected, atol=limit)
