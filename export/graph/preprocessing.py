"""Adds resizing, cropping and normalizing in front of a traced graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ...core.ports.port import Port
from ...core.ports.preprocessing import Preprocessing, Resize
from ...runtime.images.resampling import CUBIC

_MODES = {"bilinear": "linear", "bicubic": "cubic"}
_SIDES = (2, 3)


def prepend(model: onnx.ModelProto, preprocessing: Preprocessing, image: Port) -> None:
    """Add preprocessing of images of any size to a model, in place.

    Args:
        model: Traced and tidied; its first input is the result of `preprocessing`.
        preprocessing: The steps.
        image: The new input, of the same name.
    """
    replaced, graph = model.graph.input[0], model.graph
    writer = _Writer(image.name)
    if preprocessing.resize is not None:
        writer.resize(preprocessing.resize)
    if preprocessing.crop is not None:
        writer.crop(preprocessing.crop)
    if preprocessing.mean:
        writer.normalize(preprocessing)
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name == replaced.name:
                node.input[place] = writer.image
    traced = list(graph.node)
    del graph.node[:]
    graph.node.extend([*writer.nodes, *traced])
    graph.initializer.extend(writer.constants)
    dimensions = replaced.type.tensor_type.shape.dim
    free = image.free_axes()
    for place, axis in enumerate(image.axes):
        if axis not in image.lengths:
            dimensions[place].Clear()
            dimensions[place].dim_param = free[place]


class _Writer:
    """Nodes in front of a graph; ``image`` is the name of the prepared tensor so far."""

    def __init__(self, image: str) -> None:
        self.image = image
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

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
        kept = self._constant("crop", np.array(crop, np.int64))
        spare = self._node("Sub", [self._shape(), kept], "spare")
        real = self._node("Cast", [spare], "spare_real", to=onnx.TensorProto.FLOAT)
        half = self._node("Mul", [real, self._constant("half", np.float32(0.5))], "half_spare")
        rounded = self._node("Round", [half], "rounded")
        first = self._node("Cast", [rounded], "first", to=onnx.TensorProto.INT64)
        last = self._node("Add", [first, kept], "last")
        axes = self._constant("axes", np.array(_SIDES, np.int64))
        self.image = self._node("Slice", [self.image, first, last, axes], "cropped")

    def normalize(self, preprocessing: Preprocessing) -> None:
        mean, std = (
            self._constant(name, np.array(values, np.float32).reshape(1, -1, 1, 1))
            for name, values in (("mean", preprocessing.mean), ("std", preprocessing.std))
        )
        centered = self._node("Sub", [self.image, mean], "centered")
        self.image = self._node("Div", [centered, std], "normalized")

    def _shape(self) -> str:
        return self._node("Shape", [self.image], f"shape_of_{len(self.nodes)}", start=2)

    def _constant(self, name: str, values: Any) -> str:
        tensor = numpy_helper.from_array(np.asarray(values), f"preprocessing.{name}")
        self.constants.append(tensor)
        return tensor.name

    def _node(self, kind: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        output = f"preprocessing.{name}"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output
