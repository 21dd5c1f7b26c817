"""The plain ONNX graph of a network: traced once, its free sides kept, and not optimized."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from torch import nn

from ...models.facts import Facts
from ..rewrite.constants import fold_constants
from ..tracing.trace import graph_of


def trace_network(network: nn.Module, facts: Facts, opset: int, *, once: bool = True) -> ir.Model:
    """Return the graph of a network for the sizes that its facts name; arguments as of `graph_of`.

    Raises:
        Exception: Any error of PyTorch's tracer.
    """
    model = graph_of(network, facts, opset, once=once)
    simplify(model)
    return model


def simplify(model: ir.Model) -> None:
    """Write splits directly and compute what is constant, in place."""
    _split_directly(model.graph)
    fold_constants(model)


def _split_directly(graph: ir.Graph) -> None:
    """Write a split into a sequence, all of whose items are read, as ``Split``, in place."""
    for node in list(graph):
        if node.op_type != "SplitToSequence" or node.domain:
            continue
        items = [use.node for use in node.outputs[0].uses()]
        sizes = _sizes(node)
        if sizes is None or any(item.op_type != "SequenceAt" for item in items):
            continue
        name = str(node.outputs[0].name)
        numbers = np.array(sizes, np.int64)
        tensor = ir.tensor(numbers)
        sizes_value = ir.Value(name=f"{name}_sizes", const_value=tensor)
        sizes_value.type = ir.TensorType(ir.DataType.INT64)
        sizes_value.shape = ir.Shape([len(sizes)])
        graph.register_initializer(sizes_value)
        split = ir.Node(
            "",
            "Split",
            [node.inputs[0], sizes_value],
            [ir.AttrInt64("axis", node.attributes["axis"].as_int())],
            num_outputs=len(sizes),
            metadata_props=dict(node.metadata_props),
        )
        for number, output in enumerate(split.outputs):
            output.name = f"{name}_{number}"
        graph.insert_before(node, split)
        for item in items:
            place = ir.convenience.get_const_tensor(item.inputs[1])  # type: ignore[arg-type]
            output = split.outputs[int(place.numpy())]  # type: ignore[union-attr]
            output.shape = item.outputs[0].shape
            output.type = item.outputs[0].type
            ir.convenience.replace_all_uses_with(item.outputs[0], output)
            graph.remove(item, safe=True)
        graph.remove(node, safe=True)


def _sizes(node: ir.Node) -> list[int] | None:
    source, split = node.inputs[:2]
    constant = None if split is None else ir.convenience.get_const_tensor(split)
    if constant is None or source is None:
        return None
    sizes: list[int] | int = constant.numpy().tolist()
    if isinstance(sizes, list):
        return sizes
    axis = node.attributes["axis"].as_int()
    length = None if source.shape is None else source.shape[axis]
    if not isinstance(length, int):
        return None
    rest = length % sizes
    equal = [sizes] * (length // sizes)
    return [*equal, rest] if rest else equal
