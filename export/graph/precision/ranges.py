"""The largest values that a low precision would have to hold, measured on the float32 file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from ...execute.editing import NodeWriter
from ..probing import open_probe
from .choice import LowPrecision

MARGIN = 8.0
"""Safety factor between the largest value on the export's images and the type's largest
number."""


def measure_largest(
    model: onnx.ModelProto,
    names: Iterable[str],
    feeds: Sequence[Mapping[str, npt.NDArray[Any]]],
) -> dict[str, float]:
    """Return the largest absolute value of tensors of a float32 model over some inputs.

    Args:
        model: Without bodies; left as it is.
        names: Names of the tensors.
        feeds: The inputs of each run, by name.
    """
    probe: onnx.ModelProto = onnx.ModelProto.FromString(model.SerializeToString())
    writer = NodeWriter(probe.graph)
    results: dict[str, str] = {}
    for index, name in enumerate(sorted(names)):
        absolute = writer.op("Abs", [name], f"nystra.abs.{index}")
        results[name] = writer.op("ReduceMax", [absolute], f"nystra.max.{index}", keepdims=0)
        writer.show(results[name], TensorProto.FLOAT, [])
    probe.graph.node.extend(writer.nodes)
    largest = dict.fromkeys(results, 0.0)
    with open_probe(probe) as session:
        for feed in feeds:
            outputs = session.run(feed)
            for name, result in results.items():
                value = float(outputs[result])
                largest[name] = float(np.maximum(largest[name], value))
    return largest


def find_overflowing(chosen: LowPrecision, largest: Mapping[str, float]) -> dict[str, str]:
    """Return the nodes that come too near the type's largest number: first output -> why.

    Args:
        chosen: What would be low.
        largest: Absolute values by tensor, from `measure_largest`.
    """
    limit = chosen.low.largest / MARGIN
    reasons = {}
    for first, node in chosen.nodes.items():
        names = (*node.input, *node.output)
        values = [largest.get(name, 0.0) for name in names]
        worst = float(np.max(values))
        if not worst <= limit:
            reasons[first] = (
                f"values up to {worst:.2g}, above {limit:.2g} (1/{MARGIN:g} of the maximum of "
                f"{chosen.low.name})"
            )
    return reasons
