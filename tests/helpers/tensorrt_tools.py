"""The TensorRT of the tests, and small models for it.

The variables name folders: NYSTRA_TENSORRT10_ROOT and NYSTRA_TENSORRT11_ROOT an SDK each (lib,
include, python), NYSTRA_TENSORRT_RTX_ROOT what pip installed TensorRT-RTX's wheels into. The plugin
libraries come from NYSTRA_LIBRARY_DIR.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from nystra.plugins.domain import DOMAIN
from nystra.plugins.library import library_path
from nystra.plugins.operators import OPERATORS, find_schema
from nystra.plugins.operators.functions import operator_bodies
from nystra.plugins.operators.schema import VERSION, node_attributes
from operator_tests import Shape, find_tests

SDKS = {
    "10": ("tensorrt", "NYSTRA_TENSORRT10_ROOT", "python"),
    "11": ("tensorrt", "NYSTRA_TENSORRT11_ROOT", "python"),
    "rtx": ("tensorrt-rtx", "NYSTRA_TENSORRT_RTX_ROOT", "."),
}
TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
}


OPEN = {name: find_tests(name).open_node for name in OPERATORS}
"""A node of every operator with a plugin; the inputs' order and names are the schema's."""


def open_attributes(operator: str) -> dict[str, Any]:
    """Return the attributes of that node."""
    own = OPEN[operator].attributes
    return node_attributes(operator, **(own or find_tests(operator).attributes))


def use_sdk(name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put an SDK on the path of later processes; return its backend, or skip the test."""
    backend, variable, folder = SDKS[name]
    root = os.environ.get(variable)
    if not root:
        pytest.skip(f"no {backend} here: {variable} is not set")
    monkeypatch.syspath_prepend(str(Path(root, folder)))
    return backend


def plugins(name: str = "nystra_trt") -> Path:
    """Return a plugin library, or skip the test."""
    try:
        return library_path(name)
    except FileNotFoundError as error:
        pytest.skip(str(error))


def planted(fault: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the library with a planted fault."""
    monkeypatch.setenv("NYSTRA_FAULT", fault)
    return plugins("nystra_trt_faulty")


@functools.cache
def swinir(precision: str = "fp32", target: str | None = None) -> Path:
    """Return the shipped SwinIR with linear attention: any height and width, node and body."""
    from nystra.export import ExportOptions, Plan, export_model, mechanism
    from nystra.models import pretrained_path

    folder = Path(tempfile.mkdtemp(prefix="nystra-swinir-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    plan = Plan(mechanism("nystra"))
    options = ExportOptions(plan, precision=precision, target=target, speed=False)
    return export_model(pretrained_path("swinir_x2_w16"), folder / "swinir.onnx", options).model


def operator_model(
    path: Path,
    operators: list[str],
    dtype: str = "float32",
    *,
    bodies: bool = True,
    shapes: Mapping[str, Shape] | None = None,
    **changes: Any,
) -> Path:
    """Write a model with a node of each operator.

    Args:
        path: The file.
        operators: Node types.
        dtype: Type of all tensors but the int32 ones.
        bodies: Attach the ONNX functions.
        shapes: Input name (query_0, ...) -> another shape.
        **changes: Attributes that are not checked.
    """
    nodes, inputs, outputs, functions = [], [], [], {}
    for place, operator in enumerate(operators):
        schema, node = find_schema(operator), OPEN[operator]

        def value(name: str, shape: Shape, of: str) -> onnx.ValueInfoProto:
            kind = TensorProto.INT32 if name in schema.int32 else TYPES[dtype]  # noqa: B023
            return helper.make_tensor_value_info(of, kind, shape)

        for names, shapes_of, values in (
            (schema.inputs, node.inputs, inputs),
            (schema.outputs, node.outputs, outputs),
        ):
            for name, shape in zip(names, shapes_of, strict=True):
                of = f"{name}_{place}"
                own = [f"{size}{place}" if isinstance(size, str) else size for size in shape]
                values.append(value(name, (shapes or {}).get(of, tuple(own)), of))
        nodes.append(
            helper.make_node(
                operator,
                [f"{name}_{place}" for name in schema.inputs],
                [f"{name}_{place}" for name in schema.outputs],
                name=f"node_{operator}",
                domain=DOMAIN,
                **{**open_attributes(operator), **changes},
            )
        )
        if bodies:
            for body in operator_bodies(operator, 20, nodes[-1:]):
                functions[body.name] = body
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, VERSION)]
    graph = helper.make_graph(nodes, "operators", inputs, outputs)
    onnx.save(
        helper.make_model(
            graph, opset_imports=opsets, ir_version=10, functions=list(functions.values())
        ),
        path,
    )
    return path


def cases(operators: list[str]) -> list[dict[str, list[int]]]:
    """Input shapes for `operator_model`, one dictionary per size."""
    return [
        {
            f"{name}_{place}": _with(shape, OPEN[operator].sizes[size])
            for place, operator in enumerate(operators)
            for name, shape in zip(find_schema(operator).inputs, OPEN[operator].inputs, strict=True)
            if any(isinstance(length, str) for length in shape)
        }
        for size in range(3)
    ]


def output_shapes(operators: list[str]) -> list[list[list[int]]]:
    """Return the output shapes of `operator_model` for `cases`."""
    return [
        [
            _with(shape, OPEN[operator].sizes[size])
            for operator in operators
            for shape in OPEN[operator].outputs
        ]
        for size in range(3)
    ]


def _with(shape: Shape, sizes: Mapping[str, int]) -> list[int]:
    return [sizes[size] if isinstance(size, str) else size for size in shape]
