"""A replaced part of a graph as a separate module, from tensors of the graph to one of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, fx

from .file_values import is_value
from .grafting import put_sites
from .graph import shared_copy
from .rules import Provenance
from .values import Value


@dataclass(frozen=True)
class Region:
    """The computation that replaces one tensor of a graph.

    Attributes:
        sites: Name of each site's submodule -> its path in the network.
        inputs: Names of the nodes of the original graph that are its inputs.
        output: Name of the node of the original graph whose value it computes.
        module: Takes the inputs in that order, and reads free sizes from them.
        shapes: Shapes of the inputs at each size of the search; () before they are known.
    """

    sites: Mapping[str, str]
    inputs: tuple[str, ...]
    output: str
    module: fx.GraphModule
    shapes: tuple[tuple[tuple[int, ...], ...], ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of its sites in the network."""
        return tuple(self.sites.values())

    def network(self) -> fx.GraphModule:
        """Return a copy of the module with its sites at their paths."""
        module = shared_copy(self.module)
        put_sites(module, self.sites)
        module.recompile()
        return module


@dataclass(frozen=True)
class Replacement:
    """One replacement in a graph.

    Attributes:
        cores: Numbers of the attentions that it computes.
        goal: Node of the original graph whose value it computes.
        out: New node that has this value.
    """

    cores: tuple[int, ...]
    goal: fx.Node
    out: fx.Node


def region_of(
    graph: fx.GraphModule,
    run: Provenance,
    replacement: Replacement,
    replaced: dict[fx.Node, fx.Node],
    paths: Mapping[str, str],
) -> Region:
    """Return the region of a replacement.

    Args:
        graph: The graph with its replacements and all original nodes.
        run: The search that has run on it.
        replacement: The replacement.
        replaced: New node -> the old node whose value it has.
        paths: Name of each site's submodule -> its path.
    """
    inputs: dict[fx.Node, str] = {}
    inside: set[fx.Node] = set()
    todo = [replacement.out]
    while todo:
        node = todo.pop()
        if node in inside or node in inputs:
            continue
        if node is not replacement.out and is_value(node) and _depends(node, run, replaced):
            inputs[node] = replaced.get(node, node).name
            continue
        inside.add(node)
        todo += node.all_input_nodes
    part = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    order = [node for node in graph.graph.nodes if node in inputs]
    for node in order:
        copies[node] = part.placeholder(inputs[node])
    for node in graph.graph.nodes:
        if node in inside:
            copies[node] = part.node_copy(node, lambda n: copies[n])
    part.output(copies[replacement.out])
    calls = [node for node in graph.graph.nodes if node in inside and node.op == "call_module"]
    sites = {str(node.target): paths[str(node.target)] for node in calls}
    module = fx.GraphModule(graph, part)
    return Region(sites, tuple(inputs[node] for node in order), replacement.goal.name, module)


def _depends(node: fx.Node, run: Provenance, replaced: dict[fx.Node, fx.Node]) -> bool:
    """Return whether a node of the original graph depends on the input or its size."""
    if node.meta.get("sized"):
        return True
    value = run.values.get(replaced.get(node, node))
    return isinstance(value, Value) and value.place is not None


class _AllRecorded(Exception):  # noqa: N818 - no error: it ends the run
    """Raised when all requested nodes have run."""


class _Recorder(fx.Interpreter):
    """Runs a graph and keeps the values of some nodes."""

    def __init__(self, graph: fx.GraphModule, names: set[str]) -> None:
        super().__init__(graph)
        self._left = names
        self.recorded: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> object:
        """Run a node."""
        result: object = super().run_node(n)
        if n.name in self._left:
            if isinstance(result, Tensor):
                self.recorded[n.name] = result
            self._left.discard(n.name)
            if not self._left:
                raise _AllRecorded
        return result


def values_of(
    graph: fx.GraphModule, names: Iterable[str], inputs: tuple[Tensor, ...]
) -> dict[str, Tensor]:
    """Return the tensors of nodes; the graph runs up to the last of them.

    Args:
        graph: The graph. It is not modified.
        names: Names of the nodes; those whose values are no tensors are left out.
        inputs: Inputs of the graph.
    """
    recorder = _Recorder(graph, set(names))
    with torch.inference_mode(), contextlib.suppress(_AllRecorded):
        recorder.run(*(tensor.clone() for tensor in inputs))
    return recorder.recorded
