"""Equal blocks of a found network are traced once; the file is the same as without that."""

import copy
from collections import Counter
from collections.abc import Callable

import onnx
import pytest
import torch
from torch import Tensor, fx, nn

import nystra.export.found.rewritten as rewritten
from nystra.export import Plan, mechanism
from nystra.export.attention.site import resolve
from nystra.export.found.copied_parts import CopiedParts
from nystra.export.found.found_network import FoundNetwork
from nystra.export.found.graph import Traced, exported_graph
from nystra.export.found.loaded import with_found_sites
from nystra.export.found.repeats import REPEATS, idle_parts, is_equal
from nystra.export.found.rules import search
from nystra.export.found.sites import find_in_graph
from nystra.export.tracing.tidy import tidy
from nystra.models.loading import LoadedModel, load


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


class Reordered(Block):
    """Attention of rows in an order that is a constant."""

    order: Tensor

    def __init__(self, order: Tensor) -> None:
        super().__init__(0.5, 0.5)
        self.register_buffer("order", order)

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention of a map (B, 8, W, 8)."""
        return super().forward(x[:, self.order])


@pytest.fixture(scope="module")
def repeating() -> fx.GraphModule:
    image = torch.rand(1, 3, 8, 12)
    idle = idle_parts(Network().eval(), (image,))
    return exported_graph(Network().eval(), (image,), None, idle)


def test_equal_parts_are_searched_once_at_the_second_size(repeating: fx.GraphModule) -> None:
    image = torch.rand(1, 3, 8, 12)
    each = search(repeating, (image,))
    once = search(repeating, (image,), forgets=True)
    assert (len(each.cores), len(once.cores)) == (6, 2)  # of each factor of the scores one
    known = {core.out for core in once.cores}
    assert all(once.copied.originals.get(core.out, core.out) in known for core in each.cores)


def test_what_is_found_is_the_same_whether_parts_are_searched_once_or_each(
    repeating: fx.GraphModule,
) -> None:
    images = torch.rand(1, 3, 8, 12), torch.rand(1, 3, 8, 12)
    once = find_in_graph(Traced(repeating, (images[0],), (images[1],)))
    alone = copy.deepcopy(repeating)
    del alone.meta[REPEATS]
    each = find_in_graph(Traced(alone, (images[0],), (images[1],)))
    assert once.attentions == each.attentions
    assert [found.level for found in once.attentions] == ["map"] * 6


@pytest.mark.parametrize("same", [True, False])
def test_parts_whose_constants_differ_are_searched_each(*, same: bool) -> None:
    order = torch.arange(8)
    network = nn.Sequential(Reordered(order), Reordered(order.clone() if same else order.flip(0)))
    graph = exported_graph(network.eval(), (torch.rand(1, 8, 8, 8),), None, frozenset())
    assert len(graph.meta[REPEATS]) == 1
    assert bool(CopiedParts.of(graph).part) == same


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
    graph = exported_graph(network, (x,), None, idle=())
    assert len(graph.meta[REPEATS]) == 1
    assert torch.equal(graph(x), network(x))
