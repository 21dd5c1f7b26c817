"""Single-node models of the nystra operators for the tests of the native library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from nystra.plugins.domain import DOMAIN
from nystra.plugins.library import library_path
from nystra.plugins.operators import OPERATORS, find_schema
from nystra.plugins.operators.schema import VERSION, node_attributes
from operator_tests import find_tests

TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "float64": TensorProto.DOUBLE,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
}

NODES: dict[str, dict[str, Any]] = {name: find_tests(name).attributes for name in OPERATORS}
"""A good node of each operator."""

SHAPES: dict[str, list[tuple[int, ...]]] = {name: find_tests(name).shapes for name in OPERATORS}
"""Good input shapes of those nodes."""


def library() -> Path:
    """Return the library under test, or skip the test if it was not built."""
    try:
        return library_path()
    except FileNotFoundError as error:
        pytest.skip(str(error))


def attributes(operator: str, **changes: Any) -> dict[str, Any]:
    """Attributes of a valid node, some of them changed without being checked."""
    return {**node_attributes(operator, **NODES[operator]), **changes}


def arrays(operator: str, dtype: str = "float32", seed: int = 0) -> list[np.ndarray]:
    """Valid inputs for the valid node of an operator."""
    rng = np.random.default_rng(seed)
    schema = find_schema(operator)
    return [
        np.full(shape, -1, np.int32)
        if name in schema.int32
        else abs(rng.standard_normal(shape)).astype(dtype)
        if name.endswith("mask")
        else rng.standard_normal(shape).astype(dtype)
        for name, shape in zip(schema.inputs, SHAPES[operator], strict=True)
    ]


def node_session(
    operator: str, values: dict[str, Any], inputs: list[np.ndarray], threads: int = 2
) -> ort.InferenceSession:
    """A session on one node of an operator without a body: only the library can run it."""
    schema = find_schema(operator)
    names = [f"x{i}" for i in range(len(inputs))]
    results = list(schema.outputs)
    node = helper.make_node(operator, names, results, domain=DOMAIN, **values)
    graph = helper.make_graph(
        [node],
        "node",
        [
            helper.make_tensor_value_info(name, TYPES[array.dtype.name], [None] * array.ndim)
            for name, array in zip(names, inputs, strict=True)
        ],
        [
            helper.make_tensor_value_info(
                name, TYPES["int32" if name in schema.int32 else inputs[0].dtype.name], None
            )
            for name in results
        ],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, VERSION)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.register_custom_ops_library(str(library()))
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run_node(operator: str, values: dict[str, Any], inputs: list[np.ndarray]) -> np.ndarray:
    """The last output of one node; for a search its scores."""
    runner = node_session(operator, values, inputs)
    result: np.ndarray = runner.run(None, {f"x{i}": array for i, array in enumerate(inputs)})[-1]
    return result
