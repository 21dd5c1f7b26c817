"""Single operators in SwinIR-M geometry for timing: 16,384 tokens, 180 channels in 6 heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from nystra.export.attention.cluster.parameters import Cluster
from nystra.plugins.domain import DOMAIN
from nystra.plugins.library import library_path
from nystra.plugins.operators.functions import operator_body
from nystra.plugins.operators.schema import VERSION, node_attributes
from nystra.plugins.operators.window_geometry import WindowGeometry
from nystra.runtime.ort_values import OrtValue, copy_to_ort

HEADS, HEAD_DIM, SIDE = 6, 30, 128
KINDS = ("softmax", "nystrom", "nystromformer", "cluster")
"""How the names of configurations begin."""


def node(name: str) -> tuple[str, dict[str, Any]]:
    """Return operator and attributes of a configuration such as ``softmax-8-bias-mask``."""
    kind, window, *flags = name.split("-")
    side = int(window)
    shift = side // 2 if "mask" in flags else 0
    attributes: dict[str, Any] = {
        "heads": HEADS,
        "head_dim": HEAD_DIM,
        "value_dim": HEAD_DIM,
        "window_h": side,
        "window_w": side,
        "shift_h": shift,
        "shift_w": shift,
        "mask": int("mask" in flags),
        "scale": HEAD_DIM**-0.5,
    }
    if kind == "cluster":
        geometry = WindowGeometry.of(attributes)
        return "NystraWindowCluster", Cluster().attributes(geometry, "bias" in flags)
    if kind == "softmax":
        return "NystraWindowSoftmax", {**attributes, "bias": int("bias" in flags)}
    operator = "NystraWindowNystrom" if kind == "nystrom" else "NystraWindowNystromformer"
    return operator, attributes


def runner(name: str, threads: int, side: int = SIDE) -> Callable[[], None]:
    """Return a function that runs a configuration once, with preallocated inputs and outputs.

    Args:
        name: ``nystrom``, ``nystromformer``, ``cluster`` or ``softmax``, the window's side, then
            of ``bias``, ``mask`` (with a shift of half a window) and ``body``: the operator's own
            ONNX function in plain onnxruntime, without the library.
        threads: Of the session.
        side: Of the map, a multiple of the window.
    """
    operator, attributes = node(name)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((1, side, side, 3 * HEADS * HEAD_DIM), dtype=np.float32)]
    if "bias" in attributes:
        rows = (2 * attributes["window_h"] - 1) ** 2
        shape = (rows, HEADS) if attributes["bias"] else (1,)
        inputs.append(rng.standard_normal(shape, dtype=np.float32))
    names = [f"x{i}" for i in range(len(inputs))]
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, list(a.shape))
        for n, a in zip(names, inputs, strict=True)
    ]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    attribute_values = node_attributes(operator, **attributes)
    node_proto = helper.make_node(operator, names, ["y"], domain=DOMAIN, **attribute_values)
    body = name.endswith("-body")
    functions = []
    if body:
        functions.append(operator_body(operator, 20, [node_proto]))
    model = helper.make_model(
        helper.make_graph([node_proto], name, values, [out]),
        functions=functions,
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, VERSION)],
        ir_version=10,
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    if not body:
        options.register_custom_ops_library(str(library_path()))
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    given = [copy_to_ort(array) for array in inputs]
    result = copy_to_ort(np.zeros((1, side, side, HEADS * HEAD_DIM), np.float32))
    for n, value in zip(names, given, strict=True):
        binding.bind_ortvalue_input(n, value)
    binding.bind_ortvalue_output("y", result)
    return partial(_run, session, binding, [*given, result])


def _run(session: ort.InferenceSession, binding: Any, bound: Sequence[OrtValue]) -> None:
    """Run a session; before release 1.32 a binding does not keep the values that are bound."""
    session.run_with_iobinding(binding)
