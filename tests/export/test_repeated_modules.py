"""Equal blocks of a network are traced once; the graph is the same as without that."""

from collections import Counter

import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from nystra.export.execute.parts import find_reads, is_stored
from nystra.export.tracing.programs import export_program
from nystra.export.tracing.repeats import Observed, is_equal, observe
from searched_graphs import graph_of, searched


class Drop(nn.Module):
    """Returns its input; its setting differs between blocks."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return torch.dropout(x, self.rate, train=True) if self.training else x


class Attention(nn.Module):
    """Attention in windows of 4x4 of a map (B, H, W, 8)."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.qkv, self.proj = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        b, h, w, c = x.shape
        cells = x.view(b, h // 4, 4, w // 4, 4, c).transpose(2, 3).reshape(-1, 16, c)
        q, k, v = self.qkv(cells).view(-1, 16, 3, 2, 4).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * self.factor).softmax(-1)
        cells = self.proj((weights @ v).transpose(1, 2).reshape(-1, 16, c))
        back: Tensor = cells.view(b, h // 4, w // 4, 4, 4, c).transpose(2, 3).reshape(b, h, w, c)
        return back


class Block(nn.Module):
    """Attention after a norm."""

    def __init__(self, factor: float, rate: float) -> None:
        super().__init__()
        self.norm, self.attn, self.drop = nn.LayerNorm(8), Attention(factor), Drop(rate)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.drop(self.attn(self.norm(x)))
        return y


class Network(nn.Module):
    """Groups of two blocks each; the last group differs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 3, 3, 1, 1)
        rates = iter(range(1, 9))
        self.groups = nn.Sequential(
            *(
                nn.Sequential(*(Block(factor, next(rates) / 10) for _ in range(2)))
                for factor in (0.5, 0.5, 2.0)
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        maps = self.groups(self.first(x).permute(0, 2, 3, 1))
        y: Tensor = self.last(maps.permute(0, 3, 1, 2))
        return y


def test_modules_that_give_what_they_take_are_known() -> None:
    network = Network().eval()
    observed = observe(network, (torch.rand(1, 3, 8, 12),))
    assert not observed.again
    assert observed.idle == {
        f"groups.{group}.{block}.drop" for group in range(3) for block in range(2)
    }


@pytest.mark.full
def test_a_graph_is_the_same_whether_modules_are_traced_once_or_each() -> None:
    network, image = Network().eval(), torch.rand(1, 3, 8, 12)
    models = []
    for observed in (observe(network, (image,)), None):
        program, copied = export_program(network, (image,), None, observed)
        assert (len(copied) >= 3) == (observed is not None)  # a block twice, and a group
        models.append(graph_of(network, program, copied))
    once, each = models
    assert _operators(once) == _operators(each)
    assert _weights(once) == _weights(each)
    for model in models:
        found = searched(network, model, (1, 3, 8, 12), None)
        assert [attention.level for attention in found.attentions] == ["map"] * 6
        assert {attention.path for attention in found.attentions} == {
            f"groups.{group}.{block}.attn" for group in range(3) for block in range(2)
        }
        assert found.agrees(torch.rand(1, 3, 8, 12))


def _operators(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def _weights(model: ir.Model) -> set[str]:
    read = {held for node in model.graph for held in find_reads(node) if is_stored(held)}
    return {str(held.name) for held in read if "." in str(held.name)}


def test_settings_that_differ_are_told_apart() -> None:
    one, other = {"factor": 0.5, "table": torch.ones(2)}, {"factor": 0.5, "table": torch.ones(2)}
    assert is_equal(one, other)
    assert not is_equal(one, other | {"factor": 2.0})
    assert not is_equal(one, other | {"table": torch.zeros(2)})


def test_constants_in_the_code_of_repeated_modules_are_shared() -> None:
    """Like ``torch.clamp(..., max=torch.log(torch.tensor(100.0)))`` in the attention of Swin2SR."""

    class Limited(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.linear, self.act = nn.LayerNorm(3), nn.Linear(3, 3), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = torch.clamp(self.act(self.linear(self.norm(x))), max=torch.tensor(0.5))
            return y

    network = nn.Sequential(Limited(), Limited()).eval()
    x = torch.rand(2, 3)
    program, copied = export_program(network, (x,), None, Observed())
    assert len(copied) == 1
    assert len(list(graph_of(network, program, copied).graph)) > 0
