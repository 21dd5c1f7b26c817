"""The operators of nystra in OpenVINO: nodes that the CPU kernels compute, by their C interface.

Nothing is compiled against OpenVINO. It calls `evaluate` once per node and run; the kernels use
threads of their own.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from ....plugins import native
from ....plugins.domain import DOMAIN
from ....plugins.operators import OPERATORS, find_schema

_KINDS = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i32": "int32"}
"""OpenVINO's name of a type -> that of the kernels."""

_NUMBERS: dict[str, type[int] | type[float]] = {"int": int, "float": float}
"""Kind of an attribute -> the type of its value."""


def extensions(threads: int | None, low: str | None = None) -> list[Any]:
    """Return the extensions with which OpenVINO reads every operator, from ONNX and compiled files.

    Args:
        threads: Threads of the kernels; None: one per CPU.
        low: OpenVINO's name of their input and output type, ``bf16``; None: that of the file.
    """
    from openvino.frontend.onnx import ConversionExtension

    kind = _operator_class(threads)
    return [
        kind,
        *(
            ConversionExtension(name, DOMAIN, functools.partial(_convert, name, kind, low))
            for name in OPERATORS
        ),
    ]


def _convert(operator: str, kind: Any, low: str | None, node: Any) -> list[Any]:
    from openvino import opset13 as opset

    schema = find_schema(operator)
    attributes = {
        attribute.name: _NUMBERS[attribute.kind](
            node.get_attribute(attribute.name, attribute.default)
        )
        for attribute in schema.attributes
    }
    inputs = [node.get_input(index) for index in range(len(schema.inputs))]
    high = inputs[0].get_element_type().get_type_name()
    if low is not None:
        inputs = [
            array if name in schema.int32 else opset.convert(array, low).output(0)
            for name, array in zip(schema.inputs, inputs, strict=True)
        ]
    outputs = kind(inputs, operator, attributes).outputs()
    return [
        array if low is None or name in schema.int32 else opset.convert(array, high).output(0)
        for name, array in zip(schema.outputs, outputs, strict=True)
    ]


@functools.cache
def _operator_class(threads: int | None) -> Any:
    """Return the class of all operators with that number of threads.

    OpenVINO is imported on use.
    """
    from openvino import Op, PartialShape, Type

    class NystraOperator(Op):  # type: ignore[misc]
        """One node: the name of its operator and its attributes.

        OpenVINO creates one without either when it loads a compiled network, and sets them
        afterwards.
        """

        def __init__(
            self,
            inputs: Any = None,
            operator: str = "",
            attributes: dict[str, int | float] | None = None,
        ) -> None:
            self._operator, self._attributes = operator, attributes or {}
            super().__init__(self, inputs)

        def validate_and_infer_types(self) -> None:
            if not self._operator:
                return
            kind = self.get_input_element_type(0)
            shapes = [self.get_input_partial_shape(i) for i in range(self.get_input_size())]
            schema = find_schema(self._operator)
            kinds = [Type.i32 if name in schema.int32 else kind for name in schema.outputs]
            if all(shape.is_static for shape in shapes):
                types = [_kind(self.get_input_element_type(i)) for i in range(len(shapes))]
                described_inputs = [
                    (tuple(shape.to_shape()), name)
                    for shape, name in zip(shapes, types, strict=True)
                ]
                described = native.outputs(self._operator, described_inputs, self._attributes)
                partial = [PartialShape(list(shape)) for shape, _ in described]
            else:  # outputs of every operator have as many axes as its first input
                partial = [PartialShape.dynamic(shapes[0].rank) for _ in kinds]
            for index, (element, shape) in enumerate(zip(kinds, partial, strict=True)):
                self.set_output_type(index, element, shape)

        def clone_with_new_inputs(self, inputs: Any) -> Any:
            return NystraOperator(inputs, self._operator, self._attributes)

        def visit_attributes(self, visitor: Any) -> bool:
            """Write the attributes of this node, or read them from a compiled network."""
            attributes = {"operator": self._operator}
            visitor.on_attributes(attributes)
            if attributes["operator"] != self._operator:
                self._operator = attributes["operator"]
                schema = find_schema(self._operator)
                self._attributes = {
                    attribute.name: _NUMBERS[attribute.kind](0) for attribute in schema.attributes
                }
            visitor.on_attributes(self._attributes)
            return True

        def has_evaluate(self) -> bool:
            return True

        def evaluate(self, outputs: Any, inputs: Any) -> bool:
            waiting = iter(outputs)

            def memory(shape: tuple[int, ...], kind: str) -> npt.NDArray[np.generic]:
                tensor = next(waiting)
                tensor.shape = list(shape)
                array: npt.NDArray[np.generic] = tensor.data
                return array

            arrays = [tensor.data for tensor in inputs]
            kinds = [_kind(tensor.get_element_type()) for tensor in inputs]
            native.run(self._operator, arrays, self._attributes, threads, memory, kinds)
            return True

    return NystraOperator


def _kind(element_type: Any) -> str:
    name: str = element_type.get_type_name()
    return _KINDS.get(name, name)
