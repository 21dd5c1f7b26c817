"""What a graph makes of its parameters alone is computed once."""

import pytest
import torch
from torch import Tensor, fx, nn

from nystra.export.found.graph import exported_graph
from nystra.export.found.movement import node_name


class Biased(nn.Module):
    """Adds numbers that another module makes of its parameters to (B, 9, 4)."""

    def __init__(self, numbers: nn.Module) -> None:
        super().__init__()
        self.numbers, self.linear = numbers, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x) + self.numbers()
        return y


class ByNetwork(nn.Module):
    """A table of position biases by a small network, with a norm, which returns three tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offsets", torch.arange(18.0).view(9, 2))
        self.small = nn.Sequential(nn.LayerNorm(2), nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self) -> Tensor:
        numbers: Tensor = self.small(self.offsets)
        return numbers


class Weights(nn.Module):
    """Numbers by a function of a parameter (9, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(9, 4))


class Moved(Weights):
    def forward(self) -> Tensor:
        return self.weight.flip(0)


class Widened(Weights):
    """9 x 4 numbers become 4 x 9 x 4."""

    def forward(self) -> Tensor:
        return self.weight * self.weight[:4, :1, None]


class Random(Weights):
    def forward(self) -> Tensor:
        return torch.rand_like(self.weight) + self.weight


def graph_of(numbers: nn.Module) -> tuple[nn.Module, fx.GraphModule]:
    torch.manual_seed(0)
    network = Biased(numbers).eval()
    return network, exported_graph(network, (torch.rand(4, 9, 4),), None)


def folded(graph: fx.GraphModule) -> list[tuple[int, ...]]:
    return [tuple(p.shape) for name, p in graph.named_parameters() if name.startswith("folded_")]


def test_a_small_network_of_constants_is_computed_once() -> None:
    network, graph = graph_of(ByNetwork())
    assert folded(graph) == [(9, 4)]
    names = [node_name(node) for node in graph.graph.nodes if node.op == "call_function"]
    assert names == ["linear", "add"]
    x = torch.rand(4, 9, 4)
    assert torch.equal(graph(x), network(x))


@pytest.mark.parametrize("numbers", [Moved, Random, Widened])
def test_movements_random_numbers_and_much_larger_values_stay(numbers: type[nn.Module]) -> None:
    _, graph = graph_of(numbers())
    assert folded(graph) == []
