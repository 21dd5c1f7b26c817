"""Every operator that is read gives the output of onnxruntime, at every opset that has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import helper

from nystra.export.onnx_models.operators import OPERATORS

OPSETS = (13, 15, 16, 17, 18, 19, 20)


@dataclass
class Case:
    operator: str
    inputs: Sequence[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    since: int = 13
    until: int = 20

    def __str__(self) -> str:
        shapes = ",".join("" if a is None else "x".join(map(str, a.shape)) for a in self.inputs)
        return f"{self.operator}({shapes}){self.attributes or ''}"


def real(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    random = np.random.default_rng(len(shape) + sum(shape))
    return random.uniform(low, high, shape).astype(np.float32)


def whole(*values: Any) -> np.ndarray:
    return np.array(values[0] if len(values) == 1 else values, np.int64)


def number(value: Any, dtype: Any = np.float32) -> np.ndarray:
    return np.array(value, dtype)


def truth(*shape: int) -> np.ndarray:
    return real(*shape) > 0


MAP = real(2, 4, 6, 7)
REDUCTIONS = [f"Reduce{name}" for name in ("Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare")]
UNARY = {
    *("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "HardSwish", "Identity", "Neg", "Reciprocal"),
    *("Relu", "Round", "Sigmoid", "Sign", "Sin", "Softplus", "Tanh"),
}
BINARY = {
    *("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean"),
    *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"),
}

CASES = [
    *(Case(name, [MAP], since=14 if name == "HardSwish" else 13) for name in sorted(UNARY)),
    *(Case(name, [real(2, 3, 4), real(3, 1)]) for name in sorted(BINARY)),
    *(Case(name, [truth(3, 4), truth(4)]) for name in ("And", "Or", "Xor")),
    Case("Max", [real(4), real(3, 1), real(1)]),
    Case("Not", [truth(3, 4)]),
    Case("IsNaN", [np.array([1, np.nan], np.float32)]),
    Case("Log", [real(5, low=0.1)]),
    Case("Sqrt", [real(5, low=0.1)]),
    Case("Mish", [real(5)], since=18),
    Case("Div", [whole([7, -7, 8]), whole([2, 2, -3])]),
    Case("Mod", [whole([7, -7, 8]), whole([3, 3, -3])]),
    Case("Mod", [real(5), real(5, low=1)], {"fmod": 1}),
    Case("Pow", [real(5, low=0.1), number(1.7)]),
    Case("Pow", [real(5, low=0.1), whole([2])]),
    Case("PRelu", [MAP, real(4, 1, 1)]),
    Case("LeakyRelu", [MAP], {"alpha": 0.2}),
    Case("LeakyRelu", [MAP]),
    Case("Elu", [MAP], {"alpha": 0.5}),
    Case("HardSigmoid", [MAP], {"alpha": 0.3}),
    Case("Gelu", [MAP], since=20),
    Case("Gelu", [MAP], {"approximate": "tanh"}, since=20),
    Case("Clip", [MAP, number(-1), number(0.5)]),
    Case("Clip", [MAP, None, number(0.5)]),
    Case("Dropout", [MAP]),
    Case("Where", [truth(3, 1), real(3, 4), real(4)]),
    # movement
    Case("Reshape", [real(2, 3, 4), whole(0, -1)]),
    Case("Reshape", [real(0, 3), whole(3, 0)], {"allowzero": 1}, since=14),
    Case("Transpose", [real(2, 3, 4)]),
    Case("Transpose", [real(2, 3, 4)], {"perm": [1, 0, 2]}),
    Case("Flatten", [real(2, 3, 4)]),
    Case("Flatten", [real(2, 3, 4)], {"axis": -1}),
    Case("Flatten", [real(2, 3, 4)], {"axis": 0}),
    Case("Unsqueeze", [real(2, 3), whole(0, -1)]),
    Case("Squeeze", [real(1, 3, 1), whole([-1])]),
    Case("Squeeze", [real(1, 3, 1)]),
    Case("Concat", [real(2, 3), real(2, 1)], {"axis": -1}),
    Case("Split", [real(2, 6), whole(1, 5)], {"axis": 1}, outputs=2),
    Case("Split", [real(2, 7)], {"axis": 1, "num_outputs": 3}, outputs=3, since=18),
    Case("Slice", [real(5, 6), whole(1, -4), whole(9, -1), whole(0, 1), whole(2, 1)]),
    Case("Slice", [real(5, 6), whole([1]), whole([3])]),
    Case("Slice", [real(5, 6), whole(-1, 4), whole(-99, 0), whole(1, 0), whole(-1, -2)]),
    Case("Slice", [real(5, 6), whole([3]), whole([1]), whole([0])]),
    Case("Gather", [real(4, 5), whole([[0, -1], [2, 1]])], {"axis": 1}),
    Case("Gather", [real(4, 5), whole(-2)]),
    Case("Gather", [real(4, 5), whole([3, 1])]),
    Case("GatherElements", [real(3, 4), whole([[0, -1, 2, 1]])]),
    Case("GatherND", [real(3, 4, 2), whole([[0, 1], [2, -1]])]),
    Case("ScatterND", [real(3, 4), whole([[0, 1], [2, 3]]), real(2)]),
    Case("ScatterND", [real(3, 4), whole([[0], [0]]), real(2, 4)], {"reduction": "add"}, since=16),
    Case("ScatterElements", [real(3, 4), whole([[0, 1, -1, 2]]), real(1, 4)]),
    Case(
        "ScatterElements",
        [real(3, 4), whole([[1, 1]]), real(1, 2)],
        {"reduction": "add", "axis": 1},
        since=16,
    ),
    Case("Expand", [real(3, 1), whole(2, 1, 4)]),
    Case("Tile", [real(2, 3), whole(2, 2)]),
    Case("Pad", [MAP, whole(0, 0, 1, 2, 0, 0, 0, 3), number(0.5)]),
    Case("Pad", [MAP, whole(0, 0, 1, 2, 0, 0, 0, 3)], {"mode": "reflect"}),
    Case("Pad", [MAP, whole(0, 0, 1, 0, 0, 0, 2, 0)], {"mode": "edge"}),
    Case("Pad", [MAP, whole(1, -2), None, whole([-1])], since=18),
    Case("DepthToSpace", [MAP], {"blocksize": 2}),
    Case("DepthToSpace", [MAP], {"blocksize": 2, "mode": "CRD"}),
    Case("SpaceToDepth", [real(1, 3, 4, 6)], {"blocksize": 2}),
    Case("Trilu", [real(4, 5)], since=14),
    Case("Trilu", [real(4, 5), number(1, np.int64)], {"upper": 0}, since=14),
    # sizes
    Case("Shape", [MAP]),
    Case("Shape", [MAP], {"start": 1, "end": -1}, since=15),
    Case("Size", [MAP]),
    Case("Cast", [MAP], {"to": 7}),
    Case("Cast", [whole(0, 3)], {"to": 9}),
    Case("Cast", [MAP], {"to": 10}),
    Case("CastLike", [MAP, whole([1])], since=15),
    Case("Constant", [], {"value": onnx.numpy_helper.from_array(real(2, 3))}),
    Case("Constant", [], {"value_float": 0.5}),
    Case("Constant", [], {"value_floats": [0.5, 1.5]}),
    Case("Constant", [], {"value_int": 3}),
    Case("Constant", [], {"value_ints": [3, 4]}),
    Case("ConstantOfShape", [whole(2, 3)]),
    Case("ConstantOfShape", [whole(2, 3)], {"value": onnx.numpy_helper.from_array(whole([-1]))}),
    Case("Range", [number(1, np.int64), number(9, np.int64), number(3, np.int64)]),
    Case("Range", [number(5.0), number(0.5), number(-1.5)]),
    Case("Range", [number(5.0), number(5.5), number(-1.5)]),
    Case("NonZero", [np.round(real(3, 4))]),
    # layers
    Case("MatMul", [real(2, 1, 3, 4), real(5, 4, 6)]),
    Case("MatMul", [real(4), real(4, 6)]),
    Case("Gemm", [real(3, 4), real(4, 5)]),
    Case(
        "Gemm",
        [real(4, 3), real(5, 4), real(5)],
        {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0},
    ),
    Case("Conv", [MAP, real(5, 4, 3, 3), real(5)], {"pads": [1, 1, 1, 1]}),
    Case("Conv", [MAP, real(5, 4, 3, 3)], {"pads": [0, 1, 2, 1], "strides": [2, 1]}),
    Case(
        "Conv", [MAP, real(4, 1, 3, 3)], {"group": 4, "dilations": [2, 2], "kernel_shape": [3, 3]}
    ),
    Case("Conv", [MAP, real(5, 4, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    Case("Conv", [MAP, real(5, 4, 3, 3)], {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    Case("Conv", [MAP, real(5, 4, 3, 3)], {"auto_pad": "VALID"}),
    Case("Conv", [real(2, 4, 9), real(5, 4, 3)], {"pads": [1, 1]}),
    Case("ConvTranspose", [MAP, real(4, 3, 2, 2), real(3)], {"strides": [2, 2]}),
    Case(
        "ConvTranspose",
        [MAP, real(4, 3, 3, 3)],
        {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    ),
    Case("LayerNormalization", [MAP, real(7), real(7)], since=17),
    Case("LayerNormalization", [MAP, real(6, 7)], {"axis": 2, "epsilon": 1e-3}, since=17),
    Case(
        "BatchNormalization", [MAP, real(4), real(4), real(4), real(4, low=0.1)], {"epsilon": 1e-3}
    ),
    Case("InstanceNormalization", [MAP, real(4), real(4)]),
    Case("GroupNormalization", [MAP, real(2), real(2)], {"num_groups": 2}, since=18),
    Case("LpNormalization", [MAP], {"axis": 1, "p": 2}),
    Case("LpNormalization", [MAP], {"p": 1}),
    Case("Softmax", [MAP]),
    Case("Softmax", [MAP], {"axis": 1}),
    Case("LogSoftmax", [MAP], {"axis": 1}),
    Case("MaxPool", [MAP], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    Case("MaxPool", [MAP], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    Case("AveragePool", [MAP], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case(
        "AveragePool", [MAP], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}
    ),
    Case("AveragePool", [MAP], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    Case("GlobalAveragePool", [MAP]),
    Case("GlobalMaxPool", [MAP]),
    *(
        Case(
            "Resize",
            [MAP, None, number([1, 1, 2, 2])],
            {"mode": mode, "coordinate_transformation_mode": pixels},
        )
        for mode in ("nearest", "linear", "cubic")
        for pixels in ("half_pixel", "align_corners", "pytorch_half_pixel")
    ),
    *(
        Case(
            "Resize",
            [MAP, None, number([1, 1, 0.5, 1.7])],
            {"nearest_mode": rounding, "coordinate_transformation_mode": "asymmetric"},
        )
        for rounding in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    ),
    Case("Resize", [MAP, None, None, whole(2, 4, 9, 20)], {"mode": "linear"}),
    Case("Resize", [MAP, None, number([2, 3])], {"axes": [2, 3]}, since=18),
    # reductions
    *(
        Case(name, [MAP], {"axes": [1, -1], "keepdims": keep}, until=17)
        for name in REDUCTIONS
        for keep in (0, 1)
    ),
    *(
        Case(name, [MAP, whole([2])], {"keepdims": keep}, since=18)
        for name in REDUCTIONS
        for keep in (0, 1)
    ),
    Case("ReduceSum", [MAP, whole([2])]),
    Case("ReduceSum", [MAP]),
    Case("ReduceSum", [MAP, whole([])], {"noop_with_empty_axes": 1}),
    Case("ArgMax", [MAP], {"axis": 1}),
    Case("ArgMin", [MAP], {"axis": -1, "keepdims": 0}),
    Case("ArgMax", [np.round(MAP)], {"axis": 1, "select_last_index": 1}),
    Case("CumSum", [MAP, number(1, np.int64)]),
    Case("CumSum", [MAP, number(1, np.int64)], {"exclusive": 1, "reverse": 1}),
    Case("TopK", [MAP, whole([2])], {"axis": 1}, outputs=2),
    Case("TopK", [MAP, whole([2])], {"largest": 0}, outputs=2),
]


def in_onnxruntime(case: Case, opset: int) -> list[np.ndarray]:
    names = [f"i{place}" if given is not None else "" for place, given in enumerate(case.inputs)]
    outputs = [f"o{place}" for place in range(case.outputs)]
    given = {n: a for n, a in zip(names, case.inputs, strict=True) if a is not None}
    graph = helper.make_graph(
        [helper.make_node(case.operator, names, outputs, **case.attributes)],
        "one",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in given.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    return session.run(None, given)


def read(case: Case) -> list[np.ndarray]:
    inputs = [None if a is None else torch.from_numpy(a) for a in case.inputs]
    attributes = {
        name: torch.from_numpy(onnx.numpy_helper.to_array(value).copy())
        if isinstance(value, onnx.TensorProto)
        else value
        for name, value in case.attributes.items()
    }
    got = OPERATORS[case.operator](*inputs, **attributes)
    return [t.numpy() for t in (got if isinstance(got, tuple) else (got,))]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_operator_gives_what_onnxruntime_gives(case: Case) -> None:
    got = read(case)
    newest = None
    for opset in OPSETS:
        if not case.since <= opset <= case.until:
            continue
        version = onnx.defs.get_schema(case.operator, opset).since_version
        if version == newest:  # the same operator as at the opset before
            continue
        newest = version
        for expected, mine in zip(in_onnxruntime(case, opset), got, strict=True):
            assert mine.dtype == expected.dtype
            assert mine.shape == expected.shape
            np.testing.assert_allclose(mine, expected, rtol=2e-5, atol=2e-6)
    assert newest is not None


def test_every_operator_has_a_case() -> None:
    assert {case.operator for case in CASES} == set(OPERATORS)
