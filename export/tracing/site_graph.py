"""The graph of a network with declared sites, in which each of them is one node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx
import onnx_ir as ir
import torch
from torch import Tensor, nn

from ...core.errors import ExportError, TraceError
from ...models.facts import Facts
from ...plugins.domain import DOMAIN
from ...plugins.operators.schema import VERSION
from ..attention.as_trained.parameters import AsTrained
from ..attention.implementation import implement
from ..attention.mechanism import Mechanism
from ..attention.site import find_sites
from ..execute.parts import find_reads, is_stored
from ..execute.sites import SITE
from .bodies import choose_traced_opset
from .copies import merge_sizes
from .pieces import copy_piece, trace_attention
from .site_calls import SiteCall, record_calls
from .tidy import SCOPES, innermost_module, tidy
from .time_limit import CONVERSION, within_limit
from .trace import optimize_graph, trace_graph


class _Called(nn.Module):
    """The attention of a site with the arguments of a call."""

    def __init__(self, site: nn.Module, call: SiteCall) -> None:
        super().__init__()
        self.site, self.call = site, call

    def forward(self, *tensors: Tensor) -> Any:
        site: Any = self.site
        return site.implementation(*self.call.fill_in(tensors))


@dataclass(frozen=True)
class SiteGraph:
    """A network as a graph; the node of a site has the site's path as its name.

    Attributes:
        network: The network.
        facts: Its facts.
        model: The graph, not optimized.
        calls: The calls of sites, by the operators of their nodes.
        opset: Opset that mechanisms are traced for.
        fused: As of `trace_network`.
        pieces: The mechanisms that were traced.
    """

    network: nn.Module
    facts: Facts
    model: ir.Model
    calls: Mapping[str, SiteCall]
    opset: int
    fused: bool
    pieces: dict[str, onnx.ModelProto] = field(default_factory=dict)

    def write_mechanisms(self, resolved: Mapping[str, Mechanism]) -> onnx.ModelProto:
        """Return the graph with the nodes of the mechanism of each site, optimized.

        Args:
            resolved: Mechanism of every site of the network.

        Raises:
            TraceError: A mechanism cannot be traced, or the optimizer takes too long.
        """
        model = self.model.clone()
        sites: dict[str, Any] = {}
        for entry in find_sites(self.network):
            sites[entry.path] = entry.module
        for node in [node for node in model.graph if node.domain == SITE]:
            path = str(node.name)
            try:
                piece = self._trace_once(node, sites[path], resolved[path])
            except ExportError as error:
                raise TraceError(f"the attention at {path}: {error}") from error
            _replace_node(model.graph, node, copy_piece(piece, node, {}))
        model.opset_imports.pop(SITE, None)
        if any(node.domain == DOMAIN for node in model.graph):
            model.opset_imports[DOMAIN] = VERSION
        with within_limit(self.facts.inputs, CONVERSION):
            merge_sizes(model.graph)
            optimized = optimize_graph(model)
        tidy(optimized, self.facts.inputs, self.facts.outputs)
        return optimized

    def _trace_once(self, node: ir.Node, site: Any, mechanism: Mechanism) -> onnx.ModelProto:
        """Return the mechanism at the node of a site; equal ones are traced once."""
        call = self.calls[node.op_type]
        reads_site = bool(
            isinstance(mechanism, AsTrained) or mechanism.trained or mechanism.takes_site
        )
        site_name = node.name if reads_site else ""
        kind = type(site).__name__
        key = repr((kind, call, str(mechanism), site_name))
        if key not in self.pieces:
            before = site.implementation
            site.implementation = implement(mechanism, site, "operator")
            examples = [
                torch.zeros(shape, dtype=dtype)
                for shape, dtype in zip(call.shapes, call.dtypes, strict=True)
            ]
            try:
                self.pieces[key] = trace_attention(
                    _Called(site, call),
                    examples,
                    call.free,
                    self.opset,
                    has_weights=reads_site,
                    fused=self.fused,
                )
            finally:
                site.implementation = before
        return self.pieces[key]


def trace_network(
    network: nn.Module,
    facts: Facts,
    opset: int,
    *,
    fused: bool = False,
    once: bool = True,
) -> SiteGraph:
    """Return the graph of a network; it may have declared sites.

    Args:
        network: The network.
        facts: Its facts.
        opset: Version of the default domain, 18 or later.
        fused: Write PyTorch's fused attention as ``Attention`` (opset 23 and later), not in pieces.
        once: Whether modules of the same structure share one trace, and a module that runs several
            times has one. Their graphs may depend on nothing but weights, settings and inputs.

    Raises:
        TraceError: The network cannot be traced; the cause is in the message.
        UnsupportedModelError: Its code decides by sizes or draws random numbers.
    """
    recorded, calls = record_calls(network)
    model = trace_graph(recorded, facts, opset, fused=fused, once=once)
    for node in model.graph:
        if node.domain == SITE:
            node.name = _find_site(network, innermost_module(node.metadata_props[SCOPES]))
    traced = opset if fused else choose_traced_opset(opset)
    return SiteGraph(network, facts, model, calls, traced, fused)


def _find_site(network: nn.Module, scope: str) -> str:
    """Return the path of the site whose implementation ran in a module: it, or the one in it.

    Raises:
        TraceError: The module calls implementations of several sites.
    """
    paths = [site.path for site in find_sites(network)]
    inside = [path for path in paths if not scope or path.startswith(f"{scope}.")]
    candidates = [scope] if scope in paths else inside
    if len(candidates) != 1:
        names = ", ".join(candidates) or "none"
        raise TraceError(f"the sites that {scope or 'the network'} calls ({names}) cannot be told")
    return candidates[0]


def _replace_node(graph: ir.Graph, node: ir.Node, nodes: list[ir.Node]) -> None:
    """Put the nodes of a mechanism into a graph, in place of the node of its site."""
    read = dict.fromkeys(value for inner in nodes for value in find_reads(inner))
    for constant in filter(is_stored, read):
        if str(constant.name) not in graph.initializers:
            graph.register_initializer(constant)
    outputs = node.outputs
    values = [value for inner in nodes for value in inner.outputs]
    result = next(value for value in values if value.name == outputs[0].name)
    ir.convenience.replace_nodes_and_values(graph, node, [node], nodes, outputs, [result])
