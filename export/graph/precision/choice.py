"""Where a graph computes in a low precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx
from onnx import numpy_helper

from ....plugins.domain import DOMAIN, opset_of
from .constants import Constants
from .table import ATTENTION, LOW_TYPES, POINTWISE, WEIGHTED, LowType, moves
from .types import allows_type, find_data_inputs, find_float_tensors

_NEWEST = 21
"""The newest opset whose types decide: engines lack the types that later ones allow."""


@dataclass
class LowPrecision:
    """Where a graph computes in a low precision.

    Attributes:
        low: The type.
        tensors: Tensors of that type, by their names in the float32 graph.
        entering: float32 tensors that are cast to it.
        nodes: First output -> node with inputs or outputs of that type.
        reasons: First output of a node that could be low -> why it stays float32.
    """

    low: LowType
    tensors: set[str] = field(default_factory=set)
    entering: set[str] = field(default_factory=set)
    nodes: dict[str, onnx.NodeProto] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def choose_nodes(
    model: onnx.ModelProto,
    precision: str,
    keep: Mapping[str, str] | None = None,
    *,
    tensorrt: bool = False,
) -> LowPrecision:
    """Decide which nodes compute in a low precision; nothing is changed.

    Convolutions and products with weights, and the windowed operators, are low. Nodes that only
    move values, or compute on one map between two of these, keep the type of their input; all
    others are float32 (`table`). Inputs and outputs of the graph stay float32.

    Args:
        model: Traced and tidied, without bodies.
        precision: ``fp16`` or ``bf16``.
        keep: Operator types, or first outputs of nodes, to leave in float32 -> why.
        tensorrt: The file is for TensorRT alone: nystra nodes of type bfloat16 are allowed, which
            onnxruntime has no kernel for, and standard ones that ONNX allows from opset 22 on.
    """
    low = LOW_TYPES[precision]
    keep = keep or {}
    opset = opset_of(model)
    constants = Constants(model.graph, low)
    floats = find_float_tensors(model)
    chosen = LowPrecision(low)
    normalized = _find_normalized(model.graph)
    kinds = []
    reasons = []
    maps = []
    for node in model.graph.node:
        kind = _classify(node, constants)
        inputs = find_data_inputs(node, opset) if kind else []
        if kind == "low" and not floats.issuperset(inputs):
            kind = ""
        computed = [name for name in inputs if name not in constants.tensors]
        maps.append([name for name in computed if name in floats])
        by_numbers = len(maps[-1]) != 1
        exact = kind == "point" and (by_numbers or not low.pointwise)
        fused = kind != "low" and node.output[0] in normalized
        kinds.append("" if exact or fused else kind)
        asked = keep.get(node.output[0]) or keep.get(node.op_type)
        reason = asked or constants.unfit(node)
        if reason is None and node.output[0] in normalized:
            reason = "onnxruntime fuses its cast with the normalization after it, and fails"
        if reason is None and not tensorrt:
            reason = _find_unsupported(node, low, opset)
        reasons.append(reason)
    kinds_and_reasons = zip(kinds, reasons, strict=True)
    free = ["" if reason else kind for kind, reason in kinds_and_reasons]
    needed = _find_needed(model.graph, free, maps)
    rows = zip(model.graph.node, kinds, reasons, maps, strict=True)
    for node, kind, reason, inputs in rows:
        if not kind:
            continue
        if kind != "low":
            if not inputs or not all(name in chosen.tensors for name in inputs):
                continue
            if kind == "point" and node.output[0] not in needed:
                continue
        if reason is not None:
            chosen.reasons[node.output[0]] = reason
            continue
        chosen.entering |= {name for name in inputs if name not in chosen.tensors}
        chosen.tensors |= {name for name in node.output if name in floats}
        chosen.nodes[node.output[0]] = node
    return chosen


def _classify(node: onnx.NodeProto, constants: Constants) -> str:
    """Return ``low``, ``move``, ``point`` or "": how a node's type is determined."""
    if node.domain == DOMAIN:
        if node.op_type in ATTENTION:
            return "low"
        return ""
    if node.domain != "":
        return ""
    if node.op_type in WEIGHTED:
        if node.input[WEIGHTED[node.op_type]] in constants.tensors:
            return "low"
        return ""
    if moves(node):
        return "move"
    if node.op_type == "Div" and node.input[1] not in constants.tensors:
        return ""
    if node.op_type in POINTWISE:
        return "point"
    return ""


def _find_normalized(graph: onnx.GraphProto) -> set[str]:
    """Return the tensors that nodes normalize which onnxruntime makes one LayerNormalization of.

    It leaves out a cast before these nodes, whose scale then has another type than the data.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    centered = {node.input[0] for node in graph.node if node.op_type == "Sub"}
    normalized = set()
    for node in graph.node:
        if node.op_type != "ReduceMean" or node.domain != "" or node.input[0] not in centered:
            continue
        axes = [item.ints for item in node.attribute if item.name == "axes"]
        axes += [
            numpy_helper.to_array(constants[name]) for name in node.input[1:] if name in constants
        ]
        if not axes or list(axes[0]) != [1]:  # the mean of channels is no LayerNormalization
            normalized.add(node.input[0])
    return normalized


def _find_unsupported(node: onnx.NodeProto, low: LowType, opset: int) -> str | None:
    if node.domain == DOMAIN:
        if low.name == "bf16":
            return "onnxruntime has no bfloat16 kernel for it"
        return None
    opset = min(opset, _NEWEST)
    if node.domain != "" or allows_type(node.op_type, opset, low.text):
        return None
    return f"ONNX has no {low.name} {node.op_type} at opset {opset}"


def _find_needed(
    graph: onnx.GraphProto,
    kinds: list[str],
    maps: list[list[str]],
) -> set[str]:
    needed: set[str] = set()
    for node, kind, inputs in zip(
        reversed(graph.node), reversed(kinds), reversed(maps), strict=True
    ):
        if kind == "low" or (kind and any(name in needed for name in node.output)):
            needed.update(inputs)
    return needed
