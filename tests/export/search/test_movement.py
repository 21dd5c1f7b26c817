"""Numbers are moved as onnx's own reference moves data: every row of the table that moves."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.reference
import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper

from nystra.export.load.searching import at_shapes
from nystra.export.rewrite.attention_search import find_attention
from nystra.export.search.operators import OPERATORS, Kind
from small_graphs import model_of

I64 = TensorProto.INT64
CASES = {
    "Reshape": ([np.array([4, -1])], {}),
    "Flatten": ([], {"axis": 2}),
    "Squeeze": ([np.array([0])], {}),
    "Unsqueeze": ([np.array([1, -1])], {}),
    "Identity": ([], {}),
    "Cast": ([], {"to": I64}),
    "CastLike": ([np.array([1])], {}),
    "Dropout": ([], {}),
    "Transpose": ([], {"perm": [0, 2, 3, 1]}),
    "Slice": ([np.array([0, -1]), np.array([9, -9]), np.array([2, 3]), np.array([2, -1])], {}),
    "Gather": ([np.array([[1, 0], [-1, 2]])], {"axis": 2}),
    "Concat": ([np.arange(24).reshape(1, 2, 3, 4)], {"axis": 1}),
    "Split": ([np.array([1, 3])], {"axis": 3}),
    "Expand": ([np.array([2, 2, 3, 4])], {}),
    "Tile": ([np.array([2, 1, 1, 2])], {}),
    "GatherElements": ([np.zeros((1, 2, 1, 4), np.int64)], {"axis": 2}),
    "GatherND": ([np.array([[0, 1], [0, 0]])], {}),
    "Compress": ([np.array([True, False, True])], {"axis": 2}),
    "Trilu": ([np.array(0)], {"upper": 1}),
    "ReverseSequence": ([np.array([2, 1, 2])], {"batch_axis": 2, "time_axis": 1}),
    "DepthToSpace": ([], {"blocksize": 1}),
    "SpaceToDepth": ([], {"blocksize": 1}),
    "ScatterND": ([np.array([[0, 1]]), np.zeros((1, 3, 4), np.int64)], {}),
    "ScatterElements": ([np.zeros((1, 2, 1, 4), np.int64), np.ones((1, 2, 1, 4), np.int64)], {}),
}
"""Further inputs, and attributes, of each operator that moves elements of (1, 2, 3, 4)."""


MOVING = [name for name, rule in OPERATORS.items() if rule.kind is Kind.MOVES]


@pytest.mark.parametrize("operator", MOVING)
def test_numbers_are_moved_as_data(operator: str) -> None:
    if operator == "Scatter":
        pytest.skip("a former name of ScatterElements, without a reference")
    others, attributes = CASES[operator]
    numbers = np.arange(24).reshape(1, 2, 3, 4)
    names = [f"i{at}" for at in range(1 + len(others))]
    outputs = ["o0", "o1"] if operator == "Split" else ["o0"]
    node = helper.make_node(operator, names, outputs, **attributes)
    value = helper.make_tensor_value_info
    arrays = [numbers, *others]
    kinds = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in arrays]
    graph = helper.make_graph(
        [node],
        "move",
        [value(name, kind, None) for name, kind in zip(names, kinds, strict=True)],
        [value(name, I64, None) for name in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    feeds = dict(zip(names, arrays, strict=True))
    expected = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    (moved,) = ir.from_proto(model).graph
    rule = OPERATORS[operator]
    assert rule.move is not None
    parts: list[torch.Tensor | None] = [torch.from_numpy(array) for array in arrays]
    made = rule.move(moved, parts, [array.shape for array in expected])
    assert [tensor.tolist() for tensor in made] == [array.tolist() for array in expected]
    if operator in ("Expand", "Concat", "ScatterND", "ScatterElements"):
        return
    shared = torch.arange(2).reshape(1, 2, 1, 1).expand(1, 2, 3, 4)  # axes that share memory
    feeds["i0"] = shared.numpy()
    expected = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    made = rule.move(moved, [shared, *parts[1:]], [array.shape for array in expected])
    assert [tensor.tolist() for tensor in made] == [array.tolist() for array in expected]


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    [
        ("ReduceMax", ["x", "none"], {"keepdims": 0}),
        ("ReduceMax", ["x", "none"], {"noop_with_empty_axes": 1}),
        ("ReduceMax", ["x"], {}),
        ("ArgMax", ["x"], {"keepdims": 0}),
    ],
)
def test_reductions_without_axes_are_followed(
    operator: str, inputs: list[str], attributes: dict[str, int]
) -> None:
    """`amax()` in a file of PyTorch's former exporter: a search failed with a RuntimeError."""
    nodes = [
        helper.make_node(operator, inputs, ["most"], **attributes),
        helper.make_node("CastLike", ["most", "x"], ["factor"]),
        helper.make_node("Mul", ["x", "factor"], ["y"]),
    ]
    none = onnx.numpy_helper.from_array(np.array([], np.int64), "none")
    model = ir.from_proto(model_of(nodes, [none]))
    assert find_attention(model, at_shapes(model, {"x": (1, 4, 5, 6)}), None).attentions == ()
