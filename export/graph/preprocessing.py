"""Adds resizing, cropping and normalizing in front of a traced graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from ...core.arrays import Array
from ...core.ports.port import Port
from ...core.ports.preprocessing import Preprocessing, Resize
from ...runtime.images.resampling import CUBIC
from ..execute.editing import NodeWriter, PassResult

_MODES = {"bilinear": "linear", "bicubic": "cubic"}
_SIDES = (2, 3)


def prepend_preprocessing(
    model: onnx.ModelProto, preprocessing: Preprocessing, image: Port
) -> PassResult:
    """Add preprocessing of images of any size to a model, in place.

    Args:
        model: Traced and tidied; its first input is the result of `preprocessing`.
        preprocessing: The steps.
        image: The new input, of the same name.
    """
    graph = model.graph
    replaced = graph.input[0]
    steps = _Steps(graph, image.name)
    if preprocessing.resize is not None:
        steps.resize(preprocessing.resize)
    if preprocessing.crop is not None:
        steps.crop(preprocessing.crop)
    if preprocessing.mean:
        steps.normalize(preprocessing)
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name == replaced.name:
                node.input[index] = steps.image
    steps.writer.nodes.extend(graph.node)
    steps.writer.replace_all()
    dimensions = replaced.type.tensor_type.shape.dim
    free = image.free_axes()
    for index, axis in enumerate(image.axes):
        if axis not in image.lengths:
            dimensions[index].Clear()
            dimensions[index].dim_param = free[index]
    return PassResult(model)


class _Steps:
    """Nodes in front of a graph; ``image`` is the name of the prepared tensor so far."""

    def __init__(self, graph: onnx.GraphProto, image: str) -> None:
        self.writer = NodeWriter(graph)
        self.image = image

    def resize(self, resize: Resize) -> None:
        sides = self._constant("sides", np.array(resize.sides, np.int64))
        if len(resize.sides) == 1:
            shape = self._shape()
            shorter = self._node("ReduceMin", [shape], "shorter", keepdims=1)
            grown = self._node("Mul", [shape, sides], "grown")
            sides = self._node("Div", [grown, shorter], "size")
        self.image = self._node(
            "Resize",
            [self.image, "", "", sides],
            "resized",
            mode=_MODES[resize.filter],
            antialias=int(resize.antialias),
            exclude_outside=int(resize.antialias),
            axes=_SIDES,
            coordinate_transformation_mode="half_pixel",
            cubic_coeff_a=CUBIC[resize.antialias],
        )

    def crop(self, crop: tuple[int, int]) -> None:
        """Add the cut of the middle; Round takes half to even, as Python does."""
        sides = self._constant("crop", np.array(crop, np.int64))
        spare = self._node("Sub", [self._shape(), sides], "spare")
        real = self._node("Cast", [spare], "spare_real", to=onnx.TensorProto.FLOAT)
        factor = self._constant("half", np.float32(0.5))
        half = self._node("Mul", [real, factor], "half_spare")
        rounded = self._node("Round", [half], "rounded")
        first = self._node("Cast", [rounded], "first", to=onnx.TensorProto.INT64)
        last = self._node("Add", [first, sides], "last")
        axes = self._constant("axes", np.array(_SIDES, np.int64))
        ends = [self.image, first, last, axes]
        self.image = self._node("Slice", ends, "cropped")

    def normalize(self, preprocessing: Preprocessing) -> None:
        mean = self._constant("mean", _as_channels(preprocessing.mean))
        std = self._constant("std", _as_channels(preprocessing.std))
        centered = self._node("Sub", [self.image, mean], "centered")
        self.image = self._node("Div", [centered, std], "normalized")

    def _shape(self) -> str:
        name = f"shape_of_{len(self.writer.nodes)}"
        return self._node("Shape", [self.image], name, start=2)

    def _constant(self, name: str, values: Any) -> str:
        return self.writer.constant(f"preprocessing.{name}", values)

    def _node(
        self,
        kind: str,
        inputs: Sequence[str],
        name: str,
        **attributes: Any,
    ) -> str:
        output = f"preprocessing.{name}"
        return self.writer.op(kind, inputs, output, output, **attributes)


def _as_channels(numbers: Sequence[float]) -> Array:
    """Return a number of each channel as (1, C, 1, 1)."""
    array = np.array(numbers, np.float32)
    return array.reshape(1, -1, 1, 1)
