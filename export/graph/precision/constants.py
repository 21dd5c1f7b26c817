"""Weights and constants of a graph in a low precision."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from ....core.arrays import Array
from ...execute.parts import find_names_read_in
from .table import LowType


def round_to(values: Array, low: LowType) -> Array:
    """Return float32 values rounded to the nearest of a low type."""
    with np.errstate(over="ignore"):
        rounded: Array = values.astype(_numpy_type(low))
    return rounded


def _numpy_type(low: LowType) -> Any:
    if low.element == TensorProto.FLOAT16:
        return np.float16
    return ml_dtypes.bfloat16


def describe_loss(values: Array, low: LowType) -> str | None:
    """Return the loss of values in a low type beyond ordinary rounding, or None.

    The relative error (Frobenius norm) of ordinary rounding is at most 2^-digits; twice that is
    allowed. Overflow and underflow exceed it.
    """
    exact = values.astype(np.float64)
    rounded = round_to(values, low).astype(np.float64)
    is_finite = np.isfinite(exact).all()
    if is_finite and not np.isfinite(rounded).all():
        return f"a constant of {np.abs(exact).max():.3g} overflows {low.name}"
    norm = float(np.linalg.norm(exact))
    error = 0.0
    if norm:
        error = float(np.linalg.norm(rounded - exact))
    if error > 2.0 ** (1 - low.digits) * norm:
        return (
            f"constants as small as {np.abs(exact).max():.3g} lose {error / norm:.1%} in {low.name}"
        )
    return None


class Constants:
    """The float32 initializers of a graph, and their low copies.

    Attributes:
        tensors: Name -> the initializer.
    """

    def __init__(self, graph: onnx.GraphProto, low: LowType) -> None:
        inputs = {value.name for value in graph.input}
        self._graph = graph
        self._low = low
        self.tensors = {
            tensor.name: tensor
            for tensor in graph.initializer
            if tensor.data_type == TensorProto.FLOAT and tensor.name not in inputs
        }
        self._copies: dict[str, str] = {}
        self._faults: dict[str, str | None] = {}

    def unfit(self, node: onnx.NodeProto) -> str | None:
        """Return why a node's constants do not fit the low type, or None."""
        for name in node.input:
            if name in self.tensors and name not in self._faults:
                self._faults[name] = describe_loss(
                    numpy_helper.to_array(self.tensors[name]), self._low
                )
            if self._faults.get(name):
                return self._faults[name]
        return None

    def low_copy(self, name: str) -> str:
        """Return the name of a constant's low copy, which `write` makes."""
        return self._copies.setdefault(name, f"{name}.{self._low.name}")

    def write(self) -> set[str]:
        """Add the low copies to the graph, remove unused constants, return the copies' names."""
        used = find_names_read_in(self._graph)
        copies = []
        for name, copy in self._copies.items():
            array = numpy_helper.to_array(self.tensors[name])
            values = round_to(array, self._low)
            copies.append(
                onnx.TensorProto(
                    name=copy,
                    dims=values.shape,
                    data_type=self._low.element,
                    raw_data=values.tobytes(),
                )
            )
        float32 = [
            onnx.TensorProto.FromString(tensor.SerializeToString())
            for tensor in self._graph.initializer
            if tensor.name in used or tensor.name not in self._copies
        ]
        del self._graph.initializer[:]
        self._graph.initializer.extend([*float32, *copies])
        return set(self._copies.values())


def read_low_copy(tensor: onnx.TensorProto, low: LowType) -> Array:
    """Return the values of a low copy."""
    flat: Array = np.frombuffer(tensor.raw_data, dtype=_numpy_type(low))
    return flat.reshape(tuple(tensor.dims))
