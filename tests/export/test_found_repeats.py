"""What is built alike in a found network is traced once, and written as if it were not."""

from collections import Counter
from collections.abc import Callable

import onnx
import pytest
import torch
from torch import Tensor, fx, nn

import nystra.export.found.rewritten as rewritten
from nystra.export import Plan, mechanism
from nystra.export.attention.site import resolve
from nystra.export.found.found_network import FoundNetwork
from nystra.export.found.graph import exported_graph
from nystra.export.found.loaded import with_found_sites
from nystra.export.found.repeats import REPEATS, idle_parts, is_equal
from nystra.export.tracing.tidy import tidy
from nystra.models.loading import LoadedModel, load


class Drop(nn.Module):
    """Gives what it takes, with another setting in every block."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        return torch.dropout(x, self.rate, train=True) if self.training else x


class Attention(nn.Module):
    """Attention in windows of 4 x 4 of a map (B, H, W, 8)."""

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
    """Attention behind a norm."""

    def __init__(self, factor: float, rate: float) -> None:
        super().__init__()
        self.norm, self.attn, self.drop = nn.LayerNorm(8), Attention(factor), Drop(rate)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.drop(self.attn(self.norm(x)))
        return y


class Network(nn.Module):
    """Groups of two blocks each, the last of other ones."""

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


def operators(graph: fx.GraphModule) -> Counter[str]:
    return Counter(str(node.target) for node in graph.graph.nodes if node.op == "call_function")


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load(Network().eval())


@pytest.fixture(scope="module")
def found(loaded: LoadedModel) -> FoundNetwork:
    network = with_found_sites(loaded).network
    assert isinstance(network, FoundNetwork)
    return network


def test_modules_that_give_what_they_take_are_known() -> None:
    network = Network().eval()
    idle = idle_parts(network, (torch.rand(1, 3, 8, 12),))
    assert idle == {f"groups.{group}.{block}.drop" for group in range(3) for block in range(2)}


def test_a_graph_is_the_same_whether_modules_are_traced_once_or_each() -> None:
    network, image = Network().eval(), torch.rand(1, 3, 8, 12)
    idle = idle_parts(Network().eval(), (image,))
    once = exported_graph(network, (image,), None, idle)
    each = exported_graph(network, (image,), None)
    other = torch.rand(1, 3, 8, 12)
    with torch.no_grad():
        assert torch.equal(once(other), each(other))
        assert torch.equal(once(other), network(other))
    assert operators(once) == operators(each)
    assert len(once.meta[REPEATS]) >= 3  # the second block twice, and the second group
    assert REPEATS not in each.meta


def test_settings_that_differ_are_told_apart() -> None:
    one, other = {"factor": 0.5, "table": torch.ones(2)}, {"factor": 0.5, "table": torch.ones(2)}
    assert is_equal(one, other)
    assert not is_equal(one, other | {"factor": 2.0})
    assert not is_equal(one, other | {"table": torch.zeros(2)})


@pytest.mark.full
@pytest.mark.parametrize("name", ["full", "nystra"])
def test_a_file_is_the_same_whether_equal_parts_are_written_once_or_each(
    loaded: LoadedModel,
    found: FoundNetwork,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []
    fold: Callable[..., dict[str, object]] = rewritten.folded

    def counted(*args: object) -> dict[str, object]:
        copied = fold(*args)
        calls.append(len(copied))
        return copied

    plan = Plan(default=mechanism(name, landmarks=(2, 2)) if name == "nystra" else mechanism(name))
    resolved = resolve(plan, found)
    models = []
    for folded in (counted, lambda *_: {}):
        monkeypatch.setattr(rewritten, "folded", folded)
        found._traced.clear()
        model = found.trace(resolved, loaded.facts, 20, ())
        tidy(model, loaded.facts.inputs, loaded.facts.outputs)
        models.append(model)
    assert calls[0] >= 3
    once, each = models
    assert _nodes(once) == _nodes(each)
    assert _sites(once) == _sites(each)
    assert _weights(once) == _weights(each)


def _nodes(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def _sites(model: onnx.ModelProto) -> list[str]:
    return [node.name for node in model.graph.node if node.domain]


def _weights(model: onnx.ModelProto) -> list[bytes]:
    return sorted(tensor.raw_data for tensor in model.graph.initializer)
