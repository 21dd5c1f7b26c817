"""A rule of the search as described in CONTRIBUTING: a row for an operator of onnxruntime."""

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnx_files import window_attention
from toy_tree import Toy

TOY = Toy(
    "rule of the search",
    "ExpandDims",
    rows={
        "export/search/operators.py": (
            (
                '    "Transpose": _moves(',
                '    "ExpandDims": _ORDERED,\n    "Transpose": _moves(',
            ),
        )
    },
)


def file_behind_it(path: Path) -> Path:
    """Write a network of one window attention whose values go through the operator."""
    return window_attention(path, change=_change)


def _change(model: onnx.ModelProto) -> None:
    graph = model.graph
    [softmax] = [node for node in graph.node if node.op_type == "Softmax"]
    [product] = [node for node in graph.node if softmax.output[0] in node.input]
    graph.initializer.append(numpy_helper.from_array(np.array(0, np.int32), "axis"))
    graph.initializer.append(numpy_helper.from_array(np.array([0], np.int64), "axes"))
    values, product.input[1] = product.input[1], "again"
    at = list(graph.node).index(product)
    graph.node.insert(at, helper.make_node("Squeeze", ["wide", "axes"], ["again"]))
    graph.node.insert(
        at, helper.make_node("ExpandDims", [values, "axis"], ["wide"], domain="com.microsoft")
    )
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
