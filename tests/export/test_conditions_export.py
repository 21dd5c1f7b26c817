"""Whole exports of networks with a step and tokens beside the image."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from later import full, release
from nystra.export import ExportOptions, Plan, export_module, mechanism
from nystra.models import OwnNetwork, Port
from nystra.runtime import Session


class Conditional(nn.Module):
    """Patches that attend to each other, then to tokens, scaled by a step."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embed, self.back = nn.Linear(12, width), nn.Linear(width, 12)
        self.qkv, self.query = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.keys, self.step = nn.Linear(24, 2 * width), nn.Linear(1, width)

    def forward(
        self, image: Tensor, step: Tensor, text: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        y = F.pixel_unshuffle(image, 2)
        rows, columns = y.shape[2:]
        y = self.embed(y.flatten(2).transpose(1, 2)) * (1 + self.step(step[:, None]))[:, None]
        q, k, v = self.qkv(y).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        y = y + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        k, v = self.keys(text).unflatten(-1, (2, 2, -1)).permute(2, 0, 3, 1, 4)
        q = self.query(y).unflatten(-1, (2, -1)).transpose(1, 2)
        hidden = None if mask is None else (1 - mask)[:, None, None] * -1e4
        y = y + F.scaled_dot_product_attention(q, k, v, hidden).transpose(1, 2).flatten(2)
        y = self.back(y).transpose(1, 2).unflatten(2, (rows, columns))
        return image + F.pixel_shuffle(y, 2)


class Masked(Conditional):
    """The same with a mask of the tokens, 1 for each that is read."""

    def forward(self, image: Tensor, step: Tensor, text: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(image, step, text, mask)


@pytest.mark.parametrize("name", [*full("full"), *release("nystra")])
def test_a_mask_of_the_tokens(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = Masked().eval()
    path = tmp_path / "masked.onnx"
    declared = OwnNetwork(
        network,
        inputs=[
            Port("image", "image", lengths={"channels": 3}, multiple=2),
            Port("step", "condition", ("batch",)),
            Port("text", "condition", ("batch", "steps", "classes"), {"classes": 24}),
            Port("mask", "condition", ("batch", "steps")),
        ],
        outputs=[Port("output", "picture", lengths={"channels": 3})],
    )
    result = export_module(declared, path, ExportOptions(Plan(mechanism(name)), speed=False))
    if name == "nystra":
        kept = "(network.attention_1) with full attention: nystra takes no bias or mask between"
        assert kept in " ".join(result.warnings)
    session = Session(path, threads=1)
    random = np.random.default_rng(0)
    for tokens in (3, 11):
        mask = np.arange(tokens) < tokens - 2
        feeds = [random.random((2, 3, 12, 16)), random.random(2), random.random((2, tokens, 24))]
        feeds = [array.astype(np.float32) for array in [*feeds, np.stack([mask, ~mask])]]
        ports = [port.name for port in session.facts.inputs]
        got = session.run(dict(zip(ports, feeds, strict=True)))["output"]
        with torch.no_grad():
            expected = network(*map(torch.from_numpy, feeds)).numpy()
            without = network(*map(torch.from_numpy, [*feeds[:3], np.ones_like(feeds[3])])).numpy()
        limit = 1e-5 if name == "full" else 0.1
        np.testing.assert_allclose(got, expected, atol=limit)
        assert np.abs(got - without).max() > np.abs(got - expected).max()


@pytest.mark.parametrize("name", [*full("as_trained", "nystra"), *release("full")])
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
