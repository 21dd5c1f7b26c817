"""Writes a low precision into a graph: casts, and weights of half the size."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from ....plugins.domain import opset_of
from ...execute.editing import rename_values, replace_nodes
from ...execute.parts import find_names_read, subgraphs
from .choice import LowPrecision
from .constants import Constants
from .types import find_data_inputs, find_float_tensors


def write_casts(model: onnx.ModelProto, chosen: LowPrecision) -> set[str]:
    """Write a low precision into a model, in place.

    A tensor is cast once for all nodes that need it in the other type; tensors and nodes keep their
    names, low copies of weights and casts of tensors end in ``.fp16`` (``.bf16``), casts back in
    ``.fp32``. An output of the graph keeps its name and type.

    Returns:
        The tensors of the low type, by their names in the new graph.
    """
    low = chosen.low
    graph = model.graph
    opset = opset_of(model)
    constants = Constants(graph, low)
    floats = find_float_tensors(model)
    outputs = {value.name for value in graph.output}
    written: list[onnx.NodeProto] = []
    casts: dict[tuple[str, int], str] = {}
    result: set[str] = set()
    present: dict[str, str] = {}

    def cast(name: str, kind: int) -> str:
        source = present.get(name, name)
        result_name = casts.get((name, kind))
        if result_name is None:
            suffix = "fp32"
            if kind == low.element:
                suffix = low.name
            result_name = casts[name, kind] = f"{name}.{suffix}"
            if name in outputs and kind == TensorProto.FLOAT:
                result_name = casts[name, kind] = name
            node = helper.make_node(
                "Cast", [source], [result_name], name=f"cast.{result_name}", to=kind
            )
            written.append(node)
        return result_name

    for node in graph.node:
        is_low = node.output[0] in chosen.nodes
        data = set(find_data_inputs(node, opset)) if is_low else set()
        for index, name in enumerate(node.input):
            if is_low and name in data and name in floats:
                if name in constants.tensors:
                    node.input[index] = constants.low_copy(name)
                elif name not in chosen.tensors:
                    node.input[index] = cast(name, low.element)
                    result.add(node.input[index])
                else:
                    node.input[index] = present.get(name, name)
            elif name in chosen.tensors:
                node.input[index] = cast(name, TensorProto.FLOAT)
        inner = list(subgraphs(node))
        wide = sorted(chosen.tensors & find_names_read(node)) if inner else ()
        names = {name: cast(name, TensorProto.FLOAT) for name in wide}
        for graph_inside in inner:
            rename_values(graph_inside, names)
        written.append(node)
        for index, name in enumerate(node.output):
            if name not in chosen.tensors:
                continue
            if name in outputs:
                node.output[index] = present[name] = f"{name}.{low.name}"
                result.add(node.output[index])
                cast(name, TensorProto.FLOAT)
            else:
                result.add(name)
    replace_nodes(graph, written)
    del graph.value_info[:]
    return result | constants.write()
