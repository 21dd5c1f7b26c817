"""Modules that run many times are traced once per kind, and their graphs are copied."""

from collections import Counter
from dataclasses import replace
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
from nystra.export.attention.site import find_sites, swap
from nystra.export.tracing.repeats import repeats_as_calls
from nystra.export.tracing.trace import example_shapes, trace
from nystra.models.checkpoints.restorer import restorer_facts
from nystra.models.facts import Facts
from nystra.models.layers.swin import Block
from nystra.models.repeated import Repeated
from nystra.models.swinir.network import SwinIR


class Cell(Repeated):
    """A layer that knows the position of each pixel: two maps (B, H, W, 4) to two."""

    shaped_like: ClassVar[tuple[int, ...]] = (0, 1)

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.layer = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.rand(1, 4))

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        row = torch.arange(x.shape[1]).view(-1, 1, 1)
        mixed = self.layer(x) * self.scale.squeeze(0) * self.factor + row
        return mixed, y + mixed


class Half(Repeated):
    """A repeated module of one output."""

    def forward(self, x: Tensor) -> Tensor:
        return x / 2


class Network(nn.Module):
    """Runs one cell twice, one that is built like it, and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, 4, 3, 1, 1)
        self.first, self.second, self.other = Cell(2.0), Cell(2.0), Cell(3.0)
        self.halve = Half()

    def forward(self, image: Tensor) -> Tensor:
        x = y = self.enter(image).permute(0, 2, 3, 1)
        for cell in (self.first, self.second, self.first, self.other):
            x, y = cell(torch.relu(x), y)
            y = self.halve(y)
        out: Tensor = (x + y).permute(0, 3, 1, 2)
        return out


def facts() -> Facts:
    return Facts(
        architecture="toy",
        task="restoration",
        inputs=(Port("input", "image", lengths={"channels": 3}),),
        outputs=(Port("output", "image", lengths={"channels": 4}),),
        tiling="supported",
        license="unknown",
    )


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    return Network().eval()


@pytest.mark.full
def test_copies_compute_what_the_modules_do(
    network: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced = []
    export = torch.export.export

    def watched(module: nn.Module, *args: object, **more: object) -> object:
        traced.append(type(module))
        return export(module, *args, **more)

    monkeypatch.setattr(torch.export, "export", watched)
    model = trace(network, facts(), 20)
    assert traced == [Network, Cell, Half, Cell]
    assert not any("forward" in vars(module) for module in network.modules())
    onnx.checker.check_model(model)
    assert [entry.domain for entry in model.opset_import] == [""]
    weights = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    owned = dict(network.named_parameters())
    assert owned.keys() <= weights.keys()
    assert weights["first.scale"] == [4]
    counts = Counter(node.op_type for node in model.graph.node)
    assert (counts["Shape"], counts["Range"], counts["MatMul"]) == (1, 1, 4)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for shape in [(1, 3, 1, 1), (2, 3, 5, 9)]:
        image = torch.rand(shape)
        with torch.no_grad():
            wanted = network(image).numpy()
        (got,) = session.run(None, {"input": image.numpy()})
        np.testing.assert_allclose(got, wanted, atol=1e-5)


@pytest.mark.parametrize(("window", "cells"), [(8, (11, 13)), (64, (5, 7))])
def test_images_of_large_windows_have_fewer_cells(window: int, cells: tuple[int, int]) -> None:
    """RVRT with windows of 64 is traced within 6 GB."""
    ((_, _, *sides),) = example_shapes(replace(facts(), window=(window, window)))
    assert sides == [window * count - 1 for count in cells]


def test_what_a_module_refuses_ends_the_export(network: nn.Module) -> None:
    class Picky(Cell):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            raise ValueError("never twice")

    class Broken(Network):
        def __init__(self) -> None:
            super().__init__()
            self.second = Picky(2.0)

    broken = Broken().eval()
    with pytest.raises(ExportError, match="could not trace the network: never twice"):
        trace(broken, facts(), 20)
    assert not any("forward" in vars(module) for module in broken.modules())


@pytest.mark.full
def test_the_blocks_of_a_deep_network_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """One block of each kind is traced; the graph stays the same."""
    network = SwinIR(
        upscale=1, window_size=4, embed_dim=8, depths=[2, 2], num_heads=[2, 2], upsampler=""
    ).eval()
    sites = {site.path: mechanism("full") for site in find_sites(network)}
    planned = swap(network, sites, "operator")
    promised = restorer_facts("swinir", network, {"in_chans": 3}, "none")
    graphs = []
    for least in (4, 100):
        monkeypatch.setattr(Block, "copied_from", least)
        graphs.append(trace(planned, promised, 20))
    first, second = (Counter((node.domain, node.op_type) for node in g.graph.node) for g in graphs)
    assert first == second
    assert first["nystra", "NystraWindowSoftmax"] == 4


def test_an_example_of_a_large_map_is_no_larger_than_it(network: nn.Module) -> None:
    """With sides four times as long, a window of 64x64 took 74 GB."""
    sides = {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}
    with repeats_as_calls(network) as calls:
        torch.export.export(network, (torch.zeros(1, 3, 256, 8),), dynamic_shapes=(sides,))
    (sizes,) = {tuple(call.sizes.values()) for call in calls.values()}
    assert sizes == (256 + 3, 4 * 8 + 3)
