"""Maps that a Concat joins for convolutions, as in the dense blocks of RRDB networks.

Where each of them is quantized before the Concat, all with one scale, the Concat joins integers and
a map is quantized once, however many of the following layers read it.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from ...execute.parts import find_names_read
from .layers import WeightLayer


def find_concats(
    graph: onnx.GraphProto, layers: Sequence[WeightLayer]
) -> dict[str, tuple[str, ...]]:
    """Return the parts of every input of convolutions that a Concat joins for nothing else.

    Linear layers are left out: onnxruntime computes one in integers only if its input comes from a
    DequantizeLinear.

    Args:
        graph: Of float32.
        layers: The layers that are quantized.

    Returns:
        Output of a Concat -> its inputs.
    """
    convolutions = {layer.node for layer in layers if layer.kind == "Conv"}
    other = {output.name for output in graph.output}
    for node in graph.node:
        entry = set(node.input[:1]) if node.name in convolutions else set()
        other |= find_names_read(node) - entry
    sources = {layer.source for layer in layers} - other
    return {
        node.output[0]: tuple(node.input)
        for node in graph.node
        if node.op_type == "Concat" and node.output[0] in sources
    }


def group_by_scale(graph: onnx.GraphProto, layers: Sequence[WeightLayer]) -> list[list[str]]:
    """Return the inputs of layers in groups that have the same scale.

    Inputs that are joined of common maps, and those that are one of these maps, form a group.
    """
    groups: dict[str, set[str]] = {}
    for layer in layers:
        groups[layer.source] = {layer.source}
    for output, parts in find_concats(graph, layers).items():
        group = set[str]()
        for name in (output, *parts):
            group |= groups.get(name, {name})
        groups.update(dict.fromkeys(group, group))
    inputs = {layer.source: None for layer in layers}
    distinct = {id(group): group for group in groups.values()}
    listed = []
    for group in distinct.values():
        listed.append([name for name in inputs if name in group])
    return listed
