"""A program made from a searched graph equals that of a second trace."""

from collections import Counter

import pytest
import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram

import found_toys as toys
from nystra.export import Plan, mechanism
from nystra.export.attention.site import resolve, swap
from nystra.export.found.graph import Traced, exported_graph
from nystra.export.found.sites import find_in_graph
from nystra.export.tracing import trace as tracing
from nystra.export.tracing.program import program_of

AXES = {0: Dim("batch"), 2: Dim("height", min=8), 3: Dim("width", min=8)}


def noise(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def swapped(form: str = "plain") -> fx.GraphModule:
    """Return the graph of a toy with free sides and a site of exact attention."""
    network = toys.lively(toys.RearrangedByHand())
    graph = exported_graph(network, (noise(3, 3, 32, 48),), (AXES,))
    found = find_in_graph(Traced(graph, (noise(2, 3, 16, 24),), (noise(3, 3, 24, 40),)))
    assert found.served == 1
    resolved = resolve(Plan(mechanism("full")), found.network)
    site = swap(found.network, resolved, "operator" if form == "operator" else "plain")
    assert isinstance(site, fx.GraphModule)
    return site


def operators(program: ExportedProgram) -> Counter[str]:
    names = (str(node.target) for node in program.graph.nodes if node.op == "call_function")
    left_out = ("sym_", "_assert_scalar", "<built-in")
    return Counter(name for name in names if not any(part in name for part in left_out))


@pytest.mark.full
def test_a_program_computes_what_its_graph_does() -> None:
    graph = swapped()
    program = program_of(graph)
    assert program is not None
    module = program.module(check_guards=False)
    for shape in ((3, 3, 32, 48), (1, 3, 16, 24), (2, 3, 40, 56)):
        torch.testing.assert_close(module(noise(*shape)), graph(noise(*shape)), rtol=0, atol=1e-6)


@pytest.mark.full
def test_a_program_has_the_operators_of_a_second_trace() -> None:
    graph = swapped("operator")
    program = program_of(graph)
    assert program is not None
    again = torch.export.export(
        graph,
        (noise(3, 3, 32, 48),),
        dynamic_shapes=(AXES,),
        prefer_deferred_runtime_asserts_over_guards=True,
    )
    assert operators(program) == operators(again)
    assert program.state_dict.keys() <= again.state_dict.keys() | again.constants.keys()


@pytest.mark.full
def test_a_mechanism_that_writes_in_place_has_no_program() -> None:
    """Clusters of tokens are made with in-place writes: the whole graph is traced again."""
    image = noise(1, 3, 16, 24)
    graph = exported_graph(toys.lively(toys.ClassTokenBesideWindows()), (image,), None)
    found = find_in_graph(Traced(graph, (image,), None))
    plan = Plan(mechanism("cluster", clusters=(2, 2), block=4))
    site = swap(found.network, resolve(plan, found.network), "plain")
    assert isinstance(site, fx.GraphModule)
    with pytest.raises(RuntimeError, match=r"index_put_.* writes in place"):
        program_of(site)


@pytest.mark.full
def test_a_graph_that_has_no_program_is_traced_with_the_whole() -> None:
    """Negative control: the inserted part fails by itself."""

    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise NotImplementedError("no operator for this")

    graph = swapped()
    output = graph.graph.output_node()
    (result,) = output.all_input_nodes
    graph.failing = Failing()
    with graph.graph.inserting_before(output):
        output.args = (graph.graph.call_module("failing", (result,)),)
    graph.recompile()
    with pytest.raises(NotImplementedError):
        program_of(graph)
    notes: list[str] = []
    assert tracing._untraced(graph, notes.append, fixed=False) is None
    raising = f"(test_found_program.py, line {Failing.forward.__code__.co_firstlineno + 1})"
    assert notes == [f"trace the whole graph again: no operator for this {raising}"]


def test_a_graph_without_values_has_no_program() -> None:
    assert program_of(fx.symbolic_trace(nn.Conv2d(3, 3, 1))) is None
