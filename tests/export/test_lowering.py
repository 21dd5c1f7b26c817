"""Graphs of torch.export, lowered without another trace, compute what the module does."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from nystra.export.tracing.lowering import lower_graph


class Module(nn.Module):
    """A function of a tensor (2, 4, 6, 6) as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def program_of(function: Callable[[Tensor], Tensor]) -> ExportedProgram:
    free = {2: torch.export.Dim("h", min=4, max=64)}
    example = torch.zeros(2, 4, 6, 6)
    return torch.export.export(Module(function), (example,), dynamic_shapes={"x": free})


def mask(x: Tensor) -> Tensor:
    marks = torch.zeros(1, x.shape[2], 6)
    for number, rows in enumerate((slice(0, -2), slice(-2, None))):
        marks[:, rows, 1:3] = number + 1
    marks[0, 0] += 5
    return x + marks


def product(x: Tensor) -> Tensor:
    heads = x.unflatten(1, (2, 2))
    return ((heads @ heads.mT).softmax(-1) @ heads).flatten(1, 2)


def detached(x: Tensor) -> Tensor:
    return x + torch.tensor([1.0, 2, 3, 4, 5, 6]).detach_()


def cosine(x: Tensor) -> Tensor:
    return (x / x.norm(dim=1, keepdim=True).expand_as(x)).view_as(x)


def normed(x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, (6,)).relu_()


def mask_of_its_type(x: Tensor) -> Tensor:
    marks = torch.zeros(1, x.shape[2], 6).type_as(x)
    marks[:, :-2] = 1
    return x + marks


def scaled_coordinates(x: Tensor) -> Tensor:
    sides = torch.arange(1.0), torch.arange(6.0)
    rows, columns = torch.meshgrid(*sides, indexing="ij")
    places = torch.stack([rows, columns]).permute(1, 2, 0).contiguous().unsqueeze(0)
    places[:, :, :, 1] /= 5
    return x + places.sum(-1)


@pytest.mark.full
@pytest.mark.parametrize(
    "function",
    [
        mask,
        mask_of_its_type,
        scaled_coordinates,
        product,
        detached,
        normed,
        cosine,
    ],
)
def test_a_lowered_graph_computes_the_same(function: Callable[[Tensor], Tensor]) -> None:
    program = program_of(function)
    assert lower_graph(program.graph)
    program.graph_module.recompile()
    targets = [node.target for node in program.graph.nodes]
    assert not any(getattr(t, "_schema", None) and t._schema.is_mutable for t in targets)
    assert torch.ops.aten.mT.default not in targets
    x = torch.rand(2, 4, 9, 6)
    computed = program.module(check_guards=False)(x)
    torch.testing.assert_close(computed, function(x), rtol=0, atol=1e-6)


def read_by_an_older_view(x: Tensor) -> Tensor:
    whole = x * 2
    turned = whole.transpose(2, 3)
    whole[:, 0] = 1
    return turned + 1


def written_through_a_view(x: Tensor) -> Tensor:
    whole = x * 2
    whole.flatten(1, 2)[:, 0] = 1
    return whole


@pytest.mark.parametrize("function", [read_by_an_older_view, written_through_a_view])
def test_what_cannot_be_told_to_be_the_same_is_left(function: Callable[[Tensor], Tensor]) -> None:
    assert not lower_graph(program_of(function).graph)
