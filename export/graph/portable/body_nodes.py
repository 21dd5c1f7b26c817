"""The body of an operator, written into a graph whose sizes are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import onnx
from onnx import TensorProto

from ....core.errors import UnsupportedModelError
from ....plugins.operators import OPERATORS, find_schema
from ....plugins.operators.body_builder import BodyBuilder
from ....plugins.operators.functions import values_of
from ....plugins.operators.schema import OperatorSchema
from .static_graph import Constant, StaticGraph


class _Nodes(BodyBuilder):
    stepped = True

    def __init__(
        self,
        graph: StaticGraph,
        schema: OperatorSchema,
        opset: int,
        node: onnx.NodeProto,
    ) -> None:
        super().__init__(schema, opset, values=values_of(node))
        self._graph = graph
        self.inputs = list(node.input)

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        return self._graph.op(op_type, *inputs, **attributes)

    def constant(self, value: Constant) -> str:
        return self._graph.constant(value)

    def read_size(self, size: str) -> int:
        value = self._graph.value(size)
        if value is None:
            raise TypeError(f"{self.schema.name}: {size} is not a constant")
        return int(value)

    def ops(self, op_type: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        raise self._refuse(op_type)

    def loop(
        self,
        rounds: str,
        states: Sequence[tuple[str, int]],
        step: Callable[[str, list[str]], Sequence[str]],
    ) -> list[str]:
        raise self._refuse("Loop")

    def _refuse(self, op_type: str) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"{self.schema.name} needs {op_type}, which portable files cannot have; choose "
            "another mechanism for its sites, or omit `target`"
        )


def write_body(graph: StaticGraph, node: onnx.NodeProto, opset: int) -> list[str]:
    """Write the body of a nystra node whose inputs are in the graph; return its results.

    Raises:
        UnsupportedModelError: The operator searches with loops.
    """
    schema = find_schema(node.op_type)
    write = import_module(
        f"....plugins.operators.{OPERATORS[node.op_type]}.body", __package__
    ).write
    graph.prefix = node.name
    written = write(_Nodes(graph, schema, opset, node))
    results = written
    if isinstance(written, str):
        results = (written,)
    kind = graph.tensors[node.input[0]].kind
    kinds = [TensorProto.INT32 if name in schema.int32 else kind for name in schema.outputs]
    outputs = []
    for result, kind_of_result in zip(results, kinds, strict=True):
        outputs.append(graph.op("Cast", result, to=kind_of_result))
    graph.prefix = ""
    return outputs
