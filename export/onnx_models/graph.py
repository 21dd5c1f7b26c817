"""A graph of ONNX as executable nodes and constants."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from ...core.errors import NystraError, UnsupportedModelError, foreign_reason
from ..tracing.tidy import SCOPES
from .operators import OPERATORS

_LONGEST_LISTING = 4000


@dataclass(frozen=True)
class Node:
    """One node.

    Attributes:
        operator: Operator of ONNX.
        name: Name of the node, or "".
        inputs: Names of values; "" for an omitted input.
        outputs: Names of values; "" for an unused output.
        attributes: By name; tensors and graphs are decoded.
        scopes: Modules that it comes from, if the file states them, the outermost first.
    """

    operator: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Graph:
    """The main graph, or a subgraph.

    Attributes:
        inputs: Names of its inputs.
        outputs: Names of its outputs.
        nodes: The nodes in the order of execution.
        constants: Values known before it runs, by name.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Tensor]


def read_graph(graph: onnx.GraphProto) -> Graph:
    """Return a graph that `reading.read_model` accepted.

    Raises:
        UnsupportedModelError: A node has an attribute that is not supported.
    """
    constants = {tensor.name: as_tensor(tensor) for tensor in graph.initializer}
    nodes = []
    for proto in graph.node:
        node = _read_node(proto)
        if node.operator == "Constant":
            constants[node.outputs[0]] = OPERATORS["Constant"](**node.attributes)
        else:
            nodes.append(node)
    inputs = tuple(value.name for value in graph.input if value.name not in constants)
    return Graph(inputs, tuple(value.name for value in graph.output), tuple(nodes), constants)


def as_tensor(proto: onnx.TensorProto) -> Tensor:
    """Return a tensor of the file, with its own memory.

    Raises:
        NystraError: Its type or shape does not exist in PyTorch.
    """
    try:
        return torch.from_numpy(numpy_helper.to_array(proto).copy())
    except (ValueError, TypeError, RuntimeError) as error:
        reason = foreign_reason(error)
        raise NystraError(f"the tensor {proto.name!r:.80} cannot be read: {reason}") from error


def _read_node(proto: onnx.NodeProto) -> Node:
    attributes = {attribute.name: _attribute(attribute) for attribute in proto.attribute}
    if proto.op_type in OPERATORS:
        _check_attributes(proto, attributes)
    scopes = {entry.key: entry.value for entry in proto.metadata_props}
    return Node(
        proto.op_type,
        proto.name,
        tuple(proto.input),
        tuple(proto.output),
        attributes,
        _scopes(scopes.get(SCOPES, "")),
    )


def _scopes(listing: str) -> tuple[str, ...]:
    """Return the texts of ``['', 'layers.0', 'layers.0.attn', 'matmul']``."""
    return tuple(re.findall(r"'([^']*)'", listing[:_LONGEST_LISTING]))


def _attribute(attribute: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return as_tensor(value)
    if isinstance(value, onnx.GraphProto):
        return read_graph(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, (int, float)) else list(value)


def _check_attributes(proto: onnx.NodeProto, attributes: Mapping[str, Any]) -> None:
    try:
        known = inspect.signature(OPERATORS[proto.op_type]).parameters
    except ValueError:  # a function of PyTorch: without attributes
        known = inspect.signature(lambda: None).parameters
    unknown = [name for name in attributes if name not in known]
    if unknown:
        raise UnsupportedModelError(
            f"the attribute {unknown[0]!r:.60} of {proto.op_type} {proto.name!r:.80}: not "
            "supported; see docs/own.md"
        )
