"""The shapes of an ONNX graph at one size of its inputs, and its values that depend on no pixel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import torch
from torch import Tensor

from ...core.arrays import Array
from ...core.errors import UnsupportedModelError
from .parts import MOST_BYTES, PartRunner, Values, graphs_of, is_held, names_read, parts_of

MOST_ELEMENTS = 1 << 31
"""Most elements of a tensor."""

_SMALL = 1024
"""Tensors with at most this many elements may be sizes, which shapes are computed from."""

_SIZES = ("Shape", "Size")


@dataclass
class Sized:
    """A graph at one size of its inputs.

    Attributes:
        shapes: Shape of every tensor, by name.
        types: Type of every tensor, as ONNX numbers it.
        data: Names of the values that depend on pixels.
    """

    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    data: frozenset[str] = frozenset()
    _constants: Values = field(default_factory=dict)

    def constant(self, value: ir.Value) -> Tensor:
        """Return a value that depends on no pixel; half precision as float32."""
        held = value.const_value if is_held(value) else None
        array = self._constants[str(value.name)].numpy() if held is None else held.numpy()
        return as_tensor(array)

    def held(self, value: ir.Value) -> onnxruntime.OrtValue:
        """Return a value that depends on no pixel as onnxruntime takes it."""
        return self._constants[str(value.name)]

    def is_constant(self, value: ir.Value) -> bool:
        """Return whether a value is known and depends on no pixel."""
        return is_held(value) or str(value.name) in self._constants


def as_tensor(array: Array) -> Tensor:
    """Return a tensor of an array; types that PyTorch does not compute with become float32."""
    if array.dtype.kind not in "biuf" or array.dtype in (
        np.float16,
        np.uint16,
        np.uint32,
        np.uint64,
    ):
        array = array.astype(np.int64 if array.dtype.kind == "u" else np.float32)
    return torch.from_numpy(np.array(array))


def pixel_values(graph: ir.Graph) -> frozenset[str]:
    """Return the names of the values that depend on pixels of an input, not only on its size."""
    data = {str(value.name) for value in graph.inputs if not value.is_initializer()}
    for node in graph:
        if node.op_type in _SIZES and node.domain == "":
            continue
        random = node.op_type.startswith(("Random", "Bernoulli", "Multinomial"))
        read = node.inputs[:1] if node.op_type == "CastLike" else names_read(node)
        if random or any(value is not None and str(value.name) in data for value in read):
            data.update(str(value.name) for value in node.outputs if value.name)
    return frozenset(data)


def at_size(model: ir.Model, feeds: Mapping[str, Array]) -> Sized:
    """Return a graph at the size of some inputs.

    Shapes are inferred by ONNX; only where that does not determine all, as with subgraphs, which
    may compute more than their results tell, the graph is run, with limited memory.

    Raises:
        UnsupportedModelError: A tensor is too large, all of them together need too much memory, or
            onnxruntime cannot compute a node.
    """
    graph = model.graph
    sized = Sized(data=pixel_values(graph))
    for value in graph.initializers.values():
        _note(sized, value)
    _infer(model, feeds, sized)
    _refuse_large(graph, sized)
    runner = PartRunner(model, bounded=True)
    nodes = list(graph)
    known = not model.functions and all(
        str(value.name) in sized.shapes and not graphs_of(node)
        for node in nodes
        for value in node.outputs
        if value.name
    )
    values = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()
    }
    for name, array in feeds.items():
        sized.shapes[name] = array.shape
    if known:
        nodes = _without_pixels(nodes, sized, values)
    wanted = {str(value.name) for node in nodes for value in node.outputs if value.name}
    last = _last_uses(list(graph))
    for part in parts_of(nodes, wanted):
        made = runner.run(part, values)
        for name, value in made.items():
            if value.is_tensor():
                sized.shapes[name], sized.types[name] = tuple(value.shape()), value.element_type()
            if name not in sized.data and value.is_tensor():
                sized._constants[name] = value
        values |= made
        for node in part.nodes:
            for name in last.get(node, ()):
                values.pop(name, None)
    sized._constants.update((k, v) for k, v in values.items() if k not in sized.data)
    return sized


def _note(sized: Sized, value: ir.Value) -> None:
    tensor = value.const_value
    if tensor is not None:
        sized.shapes[str(value.name)] = tuple(_sides(tensor))
        sized.types[str(value.name)] = int(tensor.dtype)


def _sides(tensor: Any) -> list[int]:
    return [int(side) for side in tensor.shape]


def _without_pixels(nodes: Sequence[ir.Node], sized: Sized, values: Values) -> list[ir.Node]:
    """Return the nodes that depend on no pixel; of sizes of such values only the results."""
    kept = []
    for node in nodes:
        if any(str(value.name) in sized.data for value in node.outputs):
            continue
        source = node.inputs[0] if node.inputs else None
        if node.op_type in _SIZES and source is not None and str(source.name) in sized.data:
            shape = sized.shapes[str(source.name)]
            start, end = (node.attributes.get(name) for name in ("start", "end"))
            cut = shape[
                slice(
                    None if start is None else start.as_int(), None if end is None else end.as_int()
                )
            ]
            array = np.array(cut if node.op_type == "Shape" else math.prod(shape), np.int64)
            made = onnxruntime.OrtValue.ortvalue_from_numpy(array)
            values[str(node.outputs[0].name)] = made
            sized.shapes[str(node.outputs[0].name)] = array.shape
            sized.types[str(node.outputs[0].name)] = made.element_type()
        elif node.op_type == "CastLike" and str(node.inputs[1].name) in sized.types:  # type: ignore[union-attr]
            kept.append(_cast(node, sized.types[str(node.inputs[1].name)]))  # type: ignore[union-attr]
        else:
            kept.append(node)
    return kept


def _cast(node: ir.Node, kind: int) -> ir.Node:
    """Return a ``CastLike`` as a cast to a type, so that only its first input is read."""
    attributes = [ir.AttrInt64("to", kind)]
    outputs = [ir.Value(name=node.outputs[0].name)]
    return ir.Node("", "Cast", node.inputs[:1], attributes, outputs=outputs, name=node.name)


def _last_uses(nodes: Sequence[ir.Node]) -> dict[ir.Node, list[str]]:
    last: dict[str, ir.Node] = {}
    for node in nodes:
        for value in names_read(node):
            last[str(value.name)] = node
    uses: dict[ir.Node, list[str]] = {}
    for name, node in last.items():
        uses.setdefault(node, []).append(name)
    return uses


def _infer(model: ir.Model, feeds: Mapping[str, Array], sized: Sized) -> None:
    """Infer shapes from those of the inputs, with small constants only."""
    proto = onnx.ModelProto()
    proto.ir_version = max(model.ir_version, 8)
    proto.opset_import.extend(
        onnx.helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()
    )
    proto.functions.extend(
        ir.serde.serialize_function(function) for function in model.functions.values()
    )
    proto.graph.name = "shapes"
    make = onnx.helper.make_tensor_value_info
    for value in model.graph.inputs:
        if str(value.name) in feeds:
            name, kind = str(value.name), int(value.dtype or ir.DataType.FLOAT)
            proto.graph.input.append(make(name, kind, feeds[name].shape))
            sized.types[name] = kind
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None:
            continue
        if tensor.size <= _SMALL:
            held = ir.serde.serialize_tensor(tensor)
            held.name = str(value.name)
            proto.graph.initializer.append(held)
        else:
            proto.graph.input.append(make(str(value.name), int(tensor.dtype), _sides(tensor)))
    proto.graph.node.extend(ir.serde.serialize_node(node) for node in model.graph)
    proto.graph.output.extend(onnx.ValueInfoProto(name=value.name) for value in model.graph.outputs)
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception:  # it is run then, which reports what is wrong
        return
    for info in [*inferred.graph.value_info, *inferred.graph.output]:
        tensor_type = info.type.tensor_type
        if not info.type.HasField("tensor_type") or not tensor_type.HasField("shape"):
            continue
        sides = [
            side.dim_value if side.HasField("dim_value") else -1 for side in tensor_type.shape.dim
        ]
        if min(sides, default=0) >= 0:
            sized.shapes[info.name] = tuple(sides)
            sized.types[info.name] = tensor_type.elem_type


def _refuse_large(graph: ir.Graph, sized: Sized) -> None:
    """Raise UnsupportedModelError for tensors that are too large by their inferred shapes."""
    last = _last_uses(list(graph))
    outputs = {str(value.name) for value in graph.outputs}
    held, most = 0, 0

    def size(name: str) -> int:
        return 4 * math.prod(sized.shapes.get(name, (0,)))

    for node in graph:
        for value in node.outputs:
            count = math.prod(sized.shapes.get(str(value.name), ()))
            if count > MOST_ELEMENTS:
                sides = "x".join(map(str, sized.shapes[str(value.name)]))
                raise UnsupportedModelError(
                    f"{node.op_type} {value.name!r:.80} gives {sides}, expected at most "
                    f"{MOST_ELEMENTS} elements"
                )
        held += sum(size(str(value.name)) for value in node.outputs if value.name)
        most = max(most, held)
        held -= sum(
            size(name)
            for name in last.get(node, ())
            if name not in graph.initializers and name not in outputs
        )
    if most > MOST_BYTES:
        raise UnsupportedModelError(
            f"its values need at least {most / 2**30:.1f} GB at one time, expected at most "
            f"{MOST_BYTES / 2**30:.0f} GB: export it with free sides, or for a smaller image"
        )
