"""Writes a file with nodes of nystra; all else of it stays as it is, byte for byte."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import onnx
import onnx_ir as ir

from ...core.errors import ExportError, TraceError
from ...models.facts import Facts
from ...plugins.domain import DOMAIN, opset_of
from ...plugins.operators.functions import operator_bodies
from ..attention.as_trained.parameters import AsTrained
from ..attention.mechanism import Mechanism
from ..execute.names import find_read_names, find_result_names
from ..execute.parts import find_reads, is_stored, nodes_of, serialize_constant
from ..execute.sites import SITE
from ..tracing.bodies import attach_bodies, choose_traced_opset
from ..tracing.tidy import tidy
from ..tracing.trace import optimize_graph
from .constants import fix_sizes
from .graph_network import GraphNetwork
from .mechanisms import write_mechanism
from .replacement import Replacement, insert_replacements
from .sources import FileSource
from .written_model import WrittenModel

_IR_OF_FUNCTIONS = 8


def insert_mechanisms(
    network: GraphNetwork,
    resolved: Mapping[str, Mechanism],
    unchanged_sites: Collection[str],
    *,
    fused: bool = False,
    raised: bool = False,
) -> WrittenModel:
    """Return the file of a network with the planned mechanisms in place of its attention.

    A part is not replaced if all its sites are in ``unchanged_sites`` or as trained.

    Args:
        network: The network of the file.
        resolved: Mechanism of every site of the network.
        unchanged_sites: Paths of sites that are not replaced.
        fused: As of `trace_network`.
        raised: Whether an old opset is raised even if the nodes of nystra do not need it.

    Raises:
        ExportError: A mechanism cannot be traced.
    """
    source = network.source
    unchanged = network.source.model
    own = {path for path, mechanism in resolved.items() if isinstance(mechanism, AsTrained)}
    own.update(unchanged_sites)
    planned = []
    for item in network.replacements:
        if not own.issuperset(item.sites):
            planned.append(plan_replacement(network, item, resolved, fused=fused))
    model = onnx.ModelProto()
    notes = []
    opset = opset_of(unchanged)
    keeps_opset = not (raised or source.is_converted)
    fits = keeps_opset and all(map(partial(_fits, opset=opset), planned))
    if source.raised and not fits:
        model.CopyFrom(source.raised)
        if not source.is_converted:
            notes.append(
                f"the file's opset was raised from {opset} to {opset_of(model)}, which "
                f"{'the options ask for' if raised else 'the nodes of nystra need'}"
            )
    else:
        model.CopyFrom(unchanged)
    if not planned:
        return WrittenModel(model, tuple(notes))
    insert_nodes(model.graph, planned)
    model.ir_version = max(model.ir_version, _IR_OF_FUNCTIONS)
    if not any(entry.domain == DOMAIN for entry in model.opset_import):
        model.opset_import.add(domain=DOMAIN, version=1)
    return WrittenModel(model, tuple(notes))


def write_graph(
    network: GraphNetwork,
    resolved: Mapping[str, Mechanism],
    unchanged_sites: Collection[str],
    facts: Facts,
    *,
    fused: bool = False,
    raised: bool = False,
) -> WrittenModel:
    """Return a graph with the planned mechanisms: a file else unchanged, a network's optimized.

    Args:
        network: The network of the graph.
        resolved: Mechanism of every site of the network.
        unchanged_sites: Paths of sites that keep the network's own attention.
        facts: Facts of the network: sides that these fix are fixed in the graph of a module.
        fused: As of `trace_network`.
        raised: As of `rewrite_form`; the graph of a module is of the opset that is asked for.

    Raises:
        ExportError: A mechanism cannot be traced; TraceError for a module.
    """
    if isinstance(network.source, FileSource):
        of_file = insert_mechanisms(network, resolved, unchanged_sites, fused=fused, raised=raised)
        _declare_batch(of_file.model, facts)
        return of_file
    try:
        proto = insert_mechanisms(network, resolved, unchanged_sites, fused=fused).model
    except ExportError as error:
        raise TraceError(str(error)) from error
    if facts.sides is not None:
        attach_bodies(proto)  # onnxruntime computes sizes of what comes after their nodes
    model: ir.Model = ir.from_proto(proto)
    if facts.sides is not None:
        size = facts.test_size()
        shapes = {port.name: port.shape(size) for port in facts.inputs}
        fix_sizes(model, shapes)
        model.functions.clear()
    proto = optimize_graph(model)
    tidy(proto, facts.inputs, facts.outputs)
    return WrittenModel(proto)


def _declare_batch(model: onnx.ModelProto, facts: Facts) -> None:
    """Write the batch at which alone a file is right where it declares any.

    Its result for an image may depend on the others of a batch.
    """
    ports = (*facts.inputs, *facts.outputs)
    lengths = {port.name: port.lengths for port in ports}
    for value in (*model.graph.input, *model.graph.output):
        batch = lengths.get(value.name, {}).get("batch")
        dimensions = value.type.tensor_type.shape.dim
        if batch is not None and dimensions and not dimensions[0].HasField("dim_value"):
            dimensions[0].dim_value = batch


def _fits(item: Replacement, opset: int) -> bool:
    """Return whether nodes and the bodies of their operators mean the same at an older opset."""
    written = choose_traced_opset(opset)
    own = [ir.serde.serialize_node(node) for node in item.nodes]
    names = {node.op_type for node in own if node.domain == DOMAIN}
    nodes = [*own]
    for name in names:
        uses = [node for node in own if node.op_type == name]
        for body in operator_bodies(name, written, uses):
            nodes += nodes_of(body)
    for node in nodes:
        is_onnx = node.domain in ("", "ai.onnx")
        if is_onnx and _version(node.op_type, written) != _version(node.op_type, opset):
            return False
    return True


def _version(operator: str, opset: int) -> int:
    exists = onnx.defs.has(operator, opset)
    if exists:
        return int(onnx.defs.get_schema(operator, opset).since_version)
    return 0


def plan_replacement(
    network: GraphNetwork,
    item: Replacement,
    resolved: Mapping[str, Mechanism],
    *,
    fused: bool = False,
) -> Replacement:
    """Return a replacement whose sites are nodes of their mechanisms.

    Args:
        network: The network of the file.
        item: The replacement.
        resolved: Mechanism of every site of the network.
        fused: As of `trace_network`.

    Raises:
        ExportError: A mechanism cannot be traced.
    """
    opset = int(network.source.graph_model.opset_imports.get("", 18))
    traced = opset if fused else choose_traced_opset(opset)
    nodes: list[ir.Node] = []
    for node in item.nodes:
        if node.domain != SITE:
            nodes.append(node)
            continue
        path = str(node.name)
        nodes += write_mechanism(
            node,
            item.sites[path],
            resolved[path],
            item.site_shapes[path],
            traced,
            item.type,
            network.pieces,
        )
    return replace(item, nodes=tuple(nodes))


def insert_nodes(graph: onnx.GraphProto, planned: Sequence[Replacement]) -> None:
    """Put replacements into a graph, in place, and remove what only the replaced nodes needed."""
    ir_graph: ir.Graph = ir.serde.deserialize_graph(graph)
    nodes = list(ir_graph)
    protos = dict(zip(nodes, graph.node, strict=True))
    read = find_read_names(nodes)
    results = {value.name for value in graph.output}
    unread = find_result_names(nodes) - read
    idle = {tensor.name for tensor in graph.initializer} - read
    listed = insert_replacements(nodes, planned, results | unread)
    constants = {
        str(value.name): value
        for node in listed
        if node not in protos
        for value in find_reads(node)
        if is_stored(value)
    }
    read = find_read_names(listed)
    needed = read | results | idle
    outputs = find_result_names(listed)
    gone = find_result_names(nodes) - outputs
    needed |= {value.name for value in graph.input}
    copies = [
        copy.deepcopy(protos[node]) if node in protos else ir.serde.serialize_node(node)
        for node in listed
    ]
    del graph.node[:]
    graph.node.extend(copies)
    initializers = {tensor.name for tensor in graph.initializer}
    _remove(graph.initializer, initializers - needed)
    for name, value in constants.items():
        if name not in initializers:
            graph.initializer.append(serialize_constant(value))
    _remove(graph.value_info, gone)


def _remove(listed: Any, names: set[str]) -> None:
    for index in reversed(range(len(listed))):
        if listed[index].name in names:
            del listed[index]
