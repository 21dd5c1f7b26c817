"""Files whose images have their channels behind the sides get the order of all exported files.

Programs of TensorFlow and Keras write images (B, H, W, C). Files of nystra, and the programs that
they are made for, take (B, C, H, W).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import onnx
import onnx_ir as ir
from onnx import helper

from ...core.ports.port import IMAGE_AXES, Port
from ..execute.editing import rename_values, replace_nodes
from ..execute.parts import find_inputs
from ..rewrite.sources import FileSource

_TO_FIRST, _TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)


def has_channels_last(port: Port) -> bool:
    """Return whether a port has the axes of an image, channels last."""
    return port.axes == tuple(IMAGE_AXES[place] for place in _TO_LAST)


def channels_first(port: Port) -> Port:
    """Return a port with the axes (B, C, H, W) if its channels are last, otherwise itself."""
    return replace(port, axes=IMAGE_AXES) if has_channels_last(port) else port


def put_channels_first(model: onnx.ModelProto, names: Collection[str]) -> None:
    """Turn inputs and outputs (B, H, W, C) of a model into (B, C, H, W), in place.

    They keep their names; a `Transpose` stands behind each input and in front of each output.

    Args:
        model: A model of any opset.
        names: The inputs and outputs that are turned.
    """
    graph = model.graph
    inputs = [value for value in find_inputs(model) if value.name in names]
    outputs = [value for value in graph.output if value.name in names]
    unused = _find_unused_names(graph)
    inner: dict[str, str] = {}
    original_names: dict[str, str] = {}
    for value in (*inputs, *outputs):
        inner[value.name] = unused(value.name)
        original_names[inner[value.name]] = value.name
    rename_values(graph, inner)
    for value in outputs:
        value.name = original_names[value.name]
    first = [_transpose(value.name, inner[value.name], _TO_LAST) for value in inputs]
    last = [_transpose(inner[value.name], value.name, _TO_FIRST) for value in outputs]
    replace_nodes(graph, [*first, *graph.node, *last])
    for value in (*inputs, *outputs):
        shape = value.type.tensor_type.shape
        sides = [shape.dim[place] for place in _TO_FIRST]
        shape.CopyFrom(onnx.TensorShapeProto(dim=sides))


def with_channels_first(source: FileSource, names: Collection[str]) -> FileSource:
    """Return a file with inputs and outputs (B, H, W, C) turned; see `put_channels_first`."""
    for model in filter(None, (source.model, source.raised)):
        put_channels_first(model, names)
    graph_model = ir.from_proto(source.raised or source.model)
    return replace(source, graph_model=graph_model)


def _find_unused_names(graph: onnx.GraphProto) -> Callable[[str], str]:
    used = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        used |= {node.name, *node.input, *node.output}

    def make_name(name: str) -> str:
        candidate = f"{name}.channels_last"
        while candidate in used:
            candidate += "_"
        return candidate

    return make_name


def _transpose(source: str, target: str, order: Sequence[int]) -> onnx.NodeProto:
    name = f"{target}.turned"
    return helper.make_node("Transpose", [source], [target], name=name, perm=order)
