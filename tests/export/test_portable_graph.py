"""A graph written for one size: what is computed, what is left out, how axes are moved."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from nystra.core.errors import ExportError, UnsupportedModelError
from nystra.export.graph.portable.rewriting import OPSET, make_portable

Shape = tuple[int | str, ...]


def model_of(
    nodes: list[onnx.NodeProto],
    shape: Shape,
    result: Shape,
    **constants: np.ndarray,
) -> onnx.ModelProto:
    """A model from x to y with constants of other names."""
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("nystra", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def run(model: onnx.ModelProto, shape: tuple[int, ...]) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    result: np.ndarray = session.run(["y"], {"x": x})[0]
    return result


def portable(model: onnx.ModelProto, shape: tuple[int, ...]) -> onnx.ModelProto:
    """The model in portable form, with the same output and a name for every node."""
    want = run(model, shape)
    assert make_portable(model).notes == ()
    onnx.checker.check_model(model, full_check=True)
    names = [node.name for node in model.graph.node]
    assert all(names)
    assert len(set(names)) == len(names)
    np.testing.assert_array_equal(run(model, shape), want)
    return model


def kinds(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def node(op_type: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), [output], **attributes)


def test_arithmetic_of_sizes_is_computed() -> None:
    nodes = [
        node("Shape", "x", "sizes"),
        node("Gather", "sizes zero", "rows", axis=0),
        node("Mul", "rows two", "half"),
        node("Unsqueeze", "half axis", "length"),
        node("Concat", "length rest", "shape", axis=0),
        node("Reshape", "x shape", "flat"),
        node("Reshape", "flat same", "other"),
        node("Identity", "other", "y"),
    ]
    model = model_of(
        nodes,
        (4, 6),
        (8, 3),
        zero=np.array(0),
        two=np.array(2),
        axis=np.array([0]),
        rest=np.array([-1]),
        same=np.array([8, 3]),
    )
    assert kinds(portable(model, (4, 6))) == {"Reshape": 1}
    (shape,) = (numpy_helper.to_array(tensor) for tensor in model.graph.initializer)
    assert shape.tolist() == [8, 3]


def test_a_table_is_not_multiplied_but_weights_are_transposed() -> None:
    table, weights = np.ones((1, 64), np.float32), np.ones((8, 64), np.float32)
    nodes = [
        node("Transpose", "weights", "across", perm=[1, 0]),
        node("Expand", "table many", "wide"),
        node("Add", "x wide", "sum"),
        node("MatMul", "sum across", "y"),
    ]
    model = model_of(
        nodes, (1024, 64), (1024, 8), table=table, weights=weights, many=np.array([1024, 64])
    )
    assert kinds(portable(model, (1024, 64))) == {"Expand": 1, "Add": 1, "MatMul": 1}
    assert model.ByteSize() < 4096


def test_equal_nodes_are_written_once_and_nodes_that_do_nothing_are_not() -> None:
    nodes = [
        node("Relu", "x", "a"),
        node("Relu", "x", "b"),
        node("Mul", "a one", "c"),
        node("Where", "yes c b", "d"),
        node("Slice", "d zero end", "e"),
        node("Gather", "e all", "f", axis=1),
        node("Add", "f b", "y"),
        node("Sigmoid", "x", "unused"),
    ]
    model = model_of(
        nodes,
        (2, 3),
        (2, 3),
        one=np.float32([1]),
        yes=np.array([True]),
        zero=np.array([0]),
        end=np.array([2]),
        all=np.arange(3),
    )
    assert kinds(portable(model, (2, 3))) == {"Relu": 1, "Add": 1}


def test_windows_move_by_four_axes() -> None:
    """Partition and merge as torch traces them, with a bias per window between."""
    nodes = [
        node("Reshape", "x apart", "a"),
        node("Transpose", "a", "b", perm=[0, 1, 3, 2, 4, 5]),
        node("Add", "b bias", "c"),
        node("Transpose", "c", "d", perm=[0, 1, 3, 2, 4, 5]),
        node("Reshape", "d whole", "y"),
    ]
    model = model_of(
        nodes,
        (1, 8, 12, 3),
        (1, 8, 12, 3),
        apart=np.array([1, 2, 4, 3, 4, 3]),
        whole=np.array([1, 8, 12, 3]),
        bias=np.random.default_rng(1).random((4, 4, 3), np.float32),
    )
    portable(model, (1, 8, 12, 3))
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.value_info
    assert max(len(value.type.tensor_type.shape.dim) for value in inferred) == 4


def test_what_is_left_is_said() -> None:
    nodes = [
        node("Transpose", "x", "a", perm=[4, 3, 2, 1, 0]),
        node("ArgMax", "a", "b", axis=0, keepdims=1),
        node("Cast", "b", "y", to=TensorProto.FLOAT),
    ]
    model = model_of(nodes, (2, 2, 2, 2, 2), (1, 2, 2, 2, 2))
    many, whole = make_portable(model).notes
    assert many.startswith("3 nodes have more than 4 axes")
    assert whole.startswith("1 nodes compute with 64-bit integers")
    assert whole.endswith("b (ArgMax)")


def test_a_free_size_is_refused() -> None:
    model = model_of([node("Relu", "x", "y")], ("height", 4), ("height", 4))
    with pytest.raises(
        ExportError, match="input x has a free size, expected a fixed one: give `static`"
    ):
        make_portable(model)


def test_a_size_that_values_decide_is_refused() -> None:
    nodes = [node("NonZero", "x", "a"), node("Cast", "a", "y", to=TensorProto.FLOAT)]
    with pytest.raises(ExportError, match=r"node a \(NonZero\) cannot be written for a fixed size"):
        make_portable(model_of(nodes, (2, 3), (2, "n")))


def test_a_search_with_loops_is_refused() -> None:
    from conformance_models import node_model
    from operators.patch_match import TESTS

    case = TESTS.cases[0]
    model = node_model(case, functions=False, opset=OPSET)
    for value, array in zip(model.graph.input, case.inputs("float32"), strict=True):
        for dimension, size in zip(value.type.tensor_type.shape.dim, array.shape, strict=True):
            dimension.dim_value = size
    with pytest.raises(UnsupportedModelError, match=r"NystraPatchMatch .* another mechanism"):
        make_portable(model)
