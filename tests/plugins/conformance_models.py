"""Model files of nystra nodes, for the columns that run in onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from conformance_case import Case
from nystra.plugins.domain import DOMAIN
from nystra.plugins.operators import find_schema
from nystra.plugins.operators.functions import operator_bodies
from nystra.plugins.operators.schema import VERSION

_TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int32": TensorProto.INT32,
}
_POISON = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int32)": np.int32}


def node_model(
    *cases: Case, dtype: str = "float32", functions: bool = True, opset: int = 20
) -> onnx.ModelProto:
    """A model with one node per case, inputs and outputs named ``<name>_<index of the case>``."""
    nodes, inputs, outputs, bodies = [], [], [], {}
    for i, case in enumerate(cases):
        schema = find_schema(case.operator)
        arrays = case.inputs(dtype)
        names = [f"{name}_{i}" for name in schema.inputs]
        results = [f"{name}_{i}" for name in schema.outputs]
        attributes = case.node_attributes()
        nodes.append(helper.make_node(case.operator, names, results, domain=DOMAIN, **attributes))
        inputs += [
            helper.make_tensor_value_info(name, _TYPES[array.dtype.name], [None] * array.ndim)
            for name, array in zip(names, arrays, strict=True)
        ]
        outputs += [
            helper.make_tensor_value_info(
                name,
                _TYPES["int32" if output in schema.int32 else dtype],
                [None] * arrays[0].ndim,
            )
            for name, output in zip(results, schema.outputs, strict=True)
        ]
        if functions:
            of_type = [node for node in nodes if node.op_type == case.operator]
            for body in operator_bodies(case.operator, opset, of_type):
                bodies[body.name] = body
    graph = helper.make_graph(nodes, "conformance", inputs, outputs)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, VERSION)]
    model = helper.make_model(
        graph, functions=list(bodies.values()), opset_imports=opsets, ir_version=10
    )
    if functions:
        onnx.checker.check_model(model)
    return model


def session(
    model: onnx.ModelProto, library: Path | None = None, planned: bool = False
) -> ort.InferenceSession:
    """A session with two threads; ``planned``: tensors share buffers, as onnxruntime's default."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # others want the core
    options.log_severity_level = 4
    options.enable_mem_reuse = planned  # half of the time to load a body
    if library is not None:
        options.register_custom_ops_library(str(library))
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run_poisoned(
    runner: ort.InferenceSession, arrays: list[np.ndarray], shapes: list[tuple[int, ...]]
) -> list[np.ndarray]:
    """Run with outputs bound to memory full of NaN, or of the smallest integer."""
    binding = runner.io_binding()
    for info, array in zip(runner.get_inputs(), arrays, strict=True):
        binding.bind_cpu_input(info.name, np.ascontiguousarray(array))
    results = []
    for info, shape in zip(runner.get_outputs(), shapes, strict=True):
        kind = _POISON[info.type]
        poison = np.iinfo(kind).min if kind == np.int32 else np.nan
        result = np.full(shape, poison, kind)
        binding.bind_output(info.name, "cpu", 0, result.dtype, result.shape, result.ctypes.data)
        results.append(result)
    runner.run_with_iobinding(binding)
    return results
