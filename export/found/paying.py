"""Pieces of a network to time: its own attention against the nystra nodes that replace it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import onnx
import torch
from torch import Tensor, fx, nn

from ...models.facts import Facts
from ..attention.mechanism import Mechanism
from ..attention.site import find_sites, swap
from ..paying import SIDE, Piece, Timed
from ..tracing.bodies import attach_bodies
from ..tracing.tidy import tidy
from ..tracing.trace import trace_piece
from .found_network import FoundNetwork
from .movement import node_name
from .regions import Region, values_of

_OUTPUT = "value"


@dataclass
class FoundPieces:
    """The pieces of a network that have replacements; a `Replaceable`.

    Attributes:
        network: The network; it records the sites that keep the network's own attention.
        facts: Facts of the network.
        resolved: Mechanism of every site.
        opset: Version of the default domain of the timed models.
        source: Name of the network.
        is_written: Whether the network is traced again for every plan.
    """

    network: FoundNetwork
    facts: Facts
    resolved: Mapping[str, Mechanism]
    opset: int
    source: str = field(default="the network", init=False)
    is_written: bool = field(default=False, init=False)

    @property
    def left(self) -> dict[str, str]:
        """Path of a site -> why the network's own attention stays there."""
        return self.network.left

    def pieces(self, paths: set[str]) -> list[Piece]:
        """Return the pieces all of whose sites are among the paths."""
        rewritten = self.network.rewritten
        regions = [s.region for s in rewritten.swaps if paths.issuperset(s.region.paths)]
        if not regions:
            return []
        graph = rewritten.own()
        kinds: dict[str, list[Region]] = {}
        first: dict[str, fx.GraphModule] = {}
        for region in regions:
            part = own_part(graph, region, rewritten.data)
            kind = _kind(region, part)
            kinds.setdefault(kind, []).append(region)
            first.setdefault(kind, part)
        names = {name for kind, part in first.items() for name in _names(kinds[kind][0], part)}
        values = functools.cache(lambda: values_of(graph, names, self._images()))
        return [
            Piece(region.paths, kind, partial(self._timed, of_kind[0], first[kind], values))
            for kind, of_kind in kinds.items()
            for region in of_kind
        ]

    def whole(self, paths: set[str]) -> Timed:
        """Return models of the network with its plan, and with its own attention at those sites."""
        left = {*self.left}
        own, replaced = (
            self.network.trace(self.resolved, self.facts, self.opset, without)
            for without in (left | paths, left)
        )
        for model in (own, replaced):
            tidy(model, self.facts.inputs, self.facts.outputs)
            attach_bodies(model, self.opset)
        ports = [port.name for port in self.facts.inputs]
        images = (image.numpy() for image in self._images())
        return Timed(own, replaced, dict(zip(ports, images, strict=True)))

    def _timed(
        self, region: Region, own: fx.GraphModule, recorded: Callable[[], Mapping[str, Tensor]]
    ) -> Timed:
        values = recorded()
        replaced = swap(region.network(), self.resolved, "operator")
        before = self._traced(own, _inputs(own), values)
        after = self._traced(replaced, region.inputs, values)
        attach_bodies(after, self.opset)
        feeds = {name: values[name].contiguous().numpy() for name in _names(region, own)}
        return Timed(before, after, feeds)

    def _traced(
        self, module: nn.Module, names: tuple[str, ...], values: Mapping[str, Tensor]
    ) -> onnx.ModelProto:
        examples = tuple(values[name].clone() for name in names)
        return trace_piece(module, examples, None, self.opset, names, _OUTPUT)

    def _images(self) -> tuple[Tensor, ...]:
        """Return noise images of the size that is timed, one per input."""
        facts = self.facts
        size = facts.size(SIDE, SIDE)
        random = torch.Generator().manual_seed(0)
        return tuple(torch.rand(port.shape(size), generator=random) for port in facts.inputs)


def own_part(graph: fx.GraphModule, region: Region, data: frozenset[str]) -> fx.GraphModule:
    """Return the nodes that a region replaces, as a separate module.

    Its inputs are those of the region and other tensors of which only the sizes are read.

    Args:
        graph: The network with its own attention.
        region: The region.
        data: Names of the nodes that depend on the input.
    """
    inputs: set[fx.Node] = set()
    inside: set[fx.Node] = set()
    sizes: set[fx.Node] = set()
    todo = [node for node in graph.graph.nodes if node.name == region.output]
    while todo:
        node = todo.pop()
        if node in inside or node in inputs:
            continue
        if node.name in region.inputs or node.op == "placeholder":
            inputs.add(node)
            continue
        inside.add(node)
        sources = node.all_input_nodes
        sized = [source for source in sources if node.name not in data and source.name in data]
        sizes.update(sized)
        todo += [source for source in sources if source not in sized]
    inputs |= sizes - inside
    part = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in graph.graph.nodes:
        if node in inputs:
            copies[node] = part.placeholder(node.name)
    for node in graph.graph.nodes:
        if node in inside:
            copies[node] = part.node_copy(node, lambda n: copies[n])
        if node.name == region.output:
            part.output(copies[node])
    return fx.GraphModule(graph, part)


def _inputs(part: fx.GraphModule) -> tuple[str, ...]:
    return tuple(str(node.target) for node in part.graph.nodes if node.op == "placeholder")


def _names(region: Region, own: fx.GraphModule) -> set[str]:
    """Return the names of the inputs of a region and of the nodes that it replaces."""
    return {*region.inputs, *_inputs(own)}


def _kind(region: Region, own: fx.GraphModule) -> str:
    """Return a text of everything that the run time of a piece depends on."""
    geometries = [getattr(site.module, "geometry", None) for site in find_sites(region.module)]
    operators = [node_name(node) for node in own.graph.nodes]
    operators = sorted(name for name in operators if name not in ("", "sym_size"))
    return repr((region.shapes, geometries, operators))
