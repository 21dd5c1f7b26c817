"""Replaces a piece of a file's graph by nodes of nystra.

All else is unchanged: nodes, their order, names, initializers. Nodes of the piece that nothing else
needs are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import onnx

from ...core.errors import ExportError, foreign_text
from ...plugins.domain import DOMAIN
from ..tracing.tidy import site_path


def splice(model: onnx.ModelProto, piece: onnx.ModelProto, prefix: str) -> None:
    """Insert a piece into a model, in place.

    Args:
        model: A model of the piece's opset.
        piece: A graph whose inputs and only output are named like the values of the model that it
            connects.
        prefix: Prefix of all names inside of the piece.
    """
    graph, (output,) = model.graph, piece.graph.output
    before = _dead(graph)
    inside = _names(piece, prefix)
    known = {_content(tensor): tensor.name for tensor in graph.initializer}
    for tensor in piece.graph.initializer:
        same = known.get(_content(tensor))
        if same is not None:
            inside[tensor.name] = same
            continue
        copy = graph.initializer.add()
        copy.CopyFrom(tensor)
        copy.name = inside[tensor.name]
    place = next(n for n, node in enumerate(graph.node) if output.name in node.output)
    _leave_out(graph.node[place], output.name)
    nodes = [_renamed(node, inside, prefix) for node in piece.graph.node]
    rest = list(graph.node[place + 1 :])
    del graph.node[place + 1 :]
    graph.node.extend([*nodes, *rest])
    _remove_dead(graph, before)
    imported = {entry.domain for entry in model.opset_import}
    for entry in piece.opset_import:
        if entry.domain not in imported and entry.domain not in ("", "ai.onnx"):
            model.opset_import.add(domain=entry.domain, version=entry.version)


def fits_opset(nodes: Iterable[onnx.NodeProto], written: int, opset: int) -> bool:
    """Whether nodes of an opset have the same meaning at another one."""
    return all(
        _version(node.op_type, written) == _version(node.op_type, opset)
        for node in nodes
        if node.domain in ("", "ai.onnx")
    )


def nodes_of(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes_of(attribute.g)


def unused_prefix(model: onnx.ModelProto, wanted: str) -> str:
    """Return a prefix of no name in a model: the wanted one, or that with a number."""
    names = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        names.update((node.name, *node.input, *node.output))
    number, prefix = 1, wanted
    while any(name.startswith(prefix) for name in names):
        number += 1
        prefix = f"{wanted.rstrip('/')}_{number}/"
    return prefix


def raised(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Return a model converted to a later opset; its values keep their names.

    Raises:
        ExportError: It cannot be converted.
    """
    from onnx import version_converter

    try:
        converted: onnx.ModelProto = version_converter.convert_version(model, opset)
    except RuntimeError as error:
        reason = foreign_text(error).partition("\n")[0]
        raise ExportError(
            f"the file cannot be raised to opset {opset}, which is needed: {reason}"
        ) from error
    return converted


def _version(operator: str, opset: int) -> int:
    try:
        return int(onnx.defs.get_schema(operator, opset).since_version)
    except onnx.defs.SchemaError:
        return 0


def _names(piece: onnx.ModelProto, prefix: str) -> dict[str, str]:
    """Return the names of a piece's values in the model."""
    border = {value.name for value in [*piece.graph.input, *piece.graph.output]}
    names = {"": ""} | {name: name for name in border}
    for name in (tensor.name for tensor in piece.graph.initializer):
        names[name] = prefix + name
    for node in piece.graph.node:
        names |= {name: prefix + name for name in node.output if name not in names}
    return names


def _renamed(node: onnx.NodeProto, names: Mapping[str, str], prefix: str) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name = (site_path(node) if node.domain == DOMAIN else "") or prefix + node.name
    copy.doc_string = ""
    del copy.input[:], copy.output[:], copy.metadata_props[:]
    copy.input.extend(names[name] for name in node.input)
    copy.output.extend(names[name] for name in node.output)
    return copy


def _content(tensor: onnx.TensorProto) -> tuple[int, tuple[int, ...], bytes]:
    return tensor.data_type, tuple(tensor.dims), tensor.raw_data or tensor.SerializeToString()


def _leave_out(node: onnx.NodeProto, output: str) -> None:
    """Remove an output of a node, in place."""
    kept = [name if name != output else "" for name in node.output]
    del node.output[:]
    node.output.extend(kept)


def _read(node: onnx.NodeProto) -> set[str]:
    """Return the names that a node and its subgraphs read, and the outputs of these."""
    read = set(node.input)
    for attribute in node.attribute:
        read.update(value.name for value in attribute.g.output)
        read = read.union(*map(_read, attribute.g.node))
    return read - {""}


def _dead(graph: onnx.GraphProto) -> set[str]:
    """Return the names that nothing reads."""
    used = {value.name for value in graph.output}
    used = used.union(*map(_read, graph.node))
    given = {name for node in graph.node for name in node.output}
    return (given | {tensor.name for tensor in graph.initializer}) - used - {""}


def _remove_dead(graph: onnx.GraphProto, before: set[str]) -> None:
    """Remove nodes that nothing reads any more; those that nothing read before stay."""
    kept = {value.name for value in graph.output} | before
    gone: set[str] = set()
    for place in reversed(range(len(graph.node))):  # nodes stand behind those that they read
        node = graph.node[place]
        if kept.isdisjoint(node.output):
            gone.update(node.output)
            del graph.node[place]
        else:
            kept |= _read(node)
    kept.update(value.name for value in graph.input)
    _remove(graph.initializer, {tensor.name for tensor in graph.initializer} - kept)
    _remove(graph.value_info, gone)


def _remove(listed: Any, names: set[str]) -> None:
    for place in reversed(range(len(listed))):
        if listed[place].name in names:
            del listed[place]
