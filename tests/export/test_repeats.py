"""Modules that run many times are traced once per kind, and their graphs are copied."""

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from nystra.core.errors import ExportError
from nystra.core.ports.port import Port
from nystra.export import mechanism
from nystra.export.attention.site import find_sites
from nystra.export.tracing.site_graph import trace_network
from nystra.models.checkpoints.restorer import restorer_facts
from nystra.models.facts import Facts
from nystra.models.swinir.network import SwinIR


class Cell(nn.Module):
    """A layer that knows the position of each pixel: two maps (B, H, W, 4) to two."""

    runs: ClassVar[dict[float, Iterator[int]]] = {}
    """Counted by iterators, whose state an export does not see and put back."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.layer = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Identity())
        self.scale = nn.Parameter(torch.rand(1, 4))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if torch.compiler.is_exporting():
            next(self.runs.get(self.factor, iter(())), None)
        row = torch.arange(x.shape[1]).view(-1, 1, 1)
        mixed = self.layer(x) * self.scale.squeeze(0) * self.factor + row
        return mixed, y + mixed


class Network(nn.Module):
    """Runs one cell twice, one that is built like it, and one that is not, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, 4, 3, 1, 1)
        self.first, self.second, self.other = Cell(2.0), Cell(2.0), Cell(3.0)

    def forward(self, image: Tensor) -> Tensor:
        x = y = self.enter(image).permute(0, 2, 3, 1)
        for cell in (self.first, self.second, self.first, self.other, self.other):
            x, y = cell(torch.relu(x), y)
        out: Tensor = (x + y).permute(0, 3, 1, 2)
        return out


def facts() -> Facts:
    return Facts(
        architecture="toy",
        task="restoration",
        inputs=(Port("input", "image", lengths={"channels": 3}),),
        outputs=(Port("output", "image", lengths={"channels": 4}),),
        size_minimum=2,  # PyTorch decides by sides of 1, for which a network is traced whole
        tiling="supported",
        license="unknown",
    )


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    return Network().eval()


@pytest.mark.full
def test_copies_compute_what_the_modules_do(network: nn.Module, tmp_path: Path) -> None:
    counters = {2.0: itertools.count(), 3.0: itertools.count()}
    Cell.runs.update(counters)
    model = trace_network(network, facts(), 20).write_mechanisms({})
    assert [next(counter) for counter in counters.values()] == [1, 1]
    assert not any("forward" in vars(module) for module in network.modules())
    onnx.checker.check_model(model)
    assert [entry.domain for entry in model.opset_import] == [""]
    weights = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    assert {"first.scale", "second.scale", "other.scale"} <= weights.keys()
    assert weights["second.scale"] == [4]
    counts = Counter(node.op_type for node in model.graph.node)
    assert (counts["Shape"], counts["Range"], counts["MatMul"]) == (1, 1, 5)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for shape in [(1, 3, 1, 1), (2, 3, 5, 9)]:
        image = torch.rand(shape)
        with torch.no_grad():
            wanted = network(image).numpy()
        (got,) = session.run(None, {"input": image.numpy()})
        np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_a_module_whose_result_is_not_read_is_no_original() -> None:
    """HVICIDNet runs a block for nothing: a trace for any size failed with 'enter_17'."""

    class Unread(Network):
        def forward(self, image: Tensor) -> Tensor:
            x = self.enter(image).permute(0, 2, 3, 1)
            self.first(x, x)
            out: Tensor = self.second(x, x)[1].permute(0, 3, 1, 2)
            return out

    model = trace_network(Unread().eval(), facts(), 20).write_mechanisms({})
    assert [node.op_type for node in model.graph.node].count("MatMul") == 1


def test_what_a_module_refuses_ends_the_export(network: nn.Module) -> None:
    class Picky(Cell):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            if torch.compiler.is_exporting():
                raise ValueError("never twice")
            return super().forward(x, y)

    class Broken(Network):
        def __init__(self) -> None:
            super().__init__()
            self.second = Picky(2.0)

    broken = Broken().eval()
    with pytest.raises(ExportError, match="could not trace the network: never twice"):
        trace_network(broken, facts(), 20)
    assert not any("forward" in vars(module) for module in broken.modules())


@pytest.mark.full
def test_the_blocks_of_a_deep_network_are_copied() -> None:
    """The graph is the same as of a trace of every block."""
    network = SwinIR(
        upscale=1, window_size=4, embed_dim=8, depths=[2, 2], num_heads=[2, 2], upsampler=""
    ).eval()
    sites = {site.path: mechanism("full") for site in find_sites(network)}
    promised = restorer_facts("swinir", network, {"in_chans": 3}, "none")
    graphs = [
        trace_network(network, promised, 20, once=once).write_mechanisms(sites)
        for once in (True, False)
    ]
    first, second = (Counter((node.domain, node.op_type) for node in g.graph.node) for g in graphs)
    assert first == second
    assert first["nystra", "NystraWindowSoftmax"] == 4
