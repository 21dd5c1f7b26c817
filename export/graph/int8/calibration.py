"""The ranges of the inputs of a graph's layers, measured on images.

A range up to the largest value wastes steps on values that rarely occur; so the range with the
least error over sampled values of every feature map is chosen. The error is cubic: clipped values
are visible at single pixels, rounding is not. Every image is used twice, as it is and with higher
contrast: few photographs have black next to white, as text does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from ...execute.editing import NodeWriter
from ..probing import open_probe
from .concats import group_by_scale
from .layers import WeightLayer

DRAWN = 1 << 14
"""Values sampled from a feature map per image."""

SHARES = np.geomspace(1.0, 0.1, 40)
"""Ranges to try, as shares of the largest value."""

CONTRAST = 2.0
"""How many times further from the mean the values of the second copy of an image are."""

_DRAW = "nystra.draw"
_FLAT = "nystra.flat"

Feed = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Calibration:
    """The measured values.

    Attributes:
        ranges: Map -> its largest absolute value that 8 bits represent; the same for all maps of
            a group of `group_by_scale`.
        sizes: Output of a layer -> its elements, the mean over the images.
    """

    ranges: Mapping[str, float]
    sizes: Mapping[str, float]

    def products(self, layer: WeightLayer) -> float:
        """Return the multiplications of a layer for one image."""
        return self.sizes[layer.output] * layer.products


def calibrate(
    model: onnx.ModelProto, layers: Sequence[WeightLayer], feeds: Sequence[Feed]
) -> Calibration:
    """Run a float32 model on images and choose a range for the input of every layer.

    Args:
        model: Without bodies; not modified.
        layers: The layers of its graph.
        feeds: The inputs of each run, by name.
    """
    sources = list(dict.fromkeys(layer.source for layer in layers))
    outputs = [layer.output for layer in layers]
    probe = onnx.ModelProto.FromString(model.SerializeToString())
    _watch(probe.graph, sources, outputs)
    drawn: dict[str, list[npt.NDArray[np.float32]]] = {name: [] for name in sources}
    largest = dict.fromkeys(sources, 0.0)
    sizes = dict.fromkeys(outputs, 0.0)
    with open_probe(probe) as session:
        for feed in feeds:
            got = session.run(feed)
            for name in sources:
                drawn[name].append(got[f"{name}.drawn"])
                value = float(got[f"{name}.largest"])
                largest[name] = max(largest[name], value)
            for name in outputs:
                sizes[name] += float(got[f"{name}.size"]) / len(feeds)
    ranges = {}
    for group in group_by_scale(model.graph, layers):
        values = np.concatenate([array for name in group for array in drawn[name]])
        limit = find_range(values, max(largest[name] for name in group))
        ranges.update(dict.fromkeys(group, limit))
    return Calibration(ranges, sizes)


def add_contrast(feeds: Sequence[Feed]) -> list[Feed]:
    """Return inputs, followed by a copy of each at `CONTRAST`, within the range of all values.

    Integer inputs and constant inputs are copied unchanged.
    """
    arrays = feeds[0].items()
    names = [name for name, array in arrays if array.dtype.kind == "f"]
    ends = {}
    for name in names:
        lowest = min(feed[name].min() for feed in feeds)
        highest = max(feed[name].max() for feed in feeds)
        ends[name] = (lowest, highest)

    def contrast(feed: Feed) -> Feed:
        copies = {}
        for name, (low, high) in ends.items():
            array = feed[name]
            if array.min() < array.max():
                middle = (low + high) / 2
                contrasted = (array - array.mean()) * CONTRAST + middle
                copies[name] = contrasted.clip(low, high)
        return {**feed, **copies}

    return [*feeds, *map(contrast, feeds)]


def find_range(values: npt.NDArray[np.float32], largest: float) -> float:
    """Return the range, up to the largest value, with the least error in 8 bits."""
    if not largest > 0.0:
        return 1.0  # nothing but zeros, which any range holds
    errors = []
    for limit in largest * SHARES:
        step = limit / 127.0
        integers = np.clip(np.round(values / step), -127, 127)
        rounded = integers * step
        change = np.abs(values - rounded)
        errors.append(float(np.mean(change**3)))
    return float(largest * SHARES[int(np.argmin(errors))])


def _watch(graph: onnx.GraphProto, sources: Iterable[str], outputs: Iterable[str]) -> None:
    writer = NodeWriter(graph)
    numbers = np.random.default_rng(0).integers(0, 1 << 62, DRAWN)
    draw = writer.constant(_DRAW, numbers)
    flat = writer.constant(_FLAT, np.array([-1]))
    for name in sources:
        size = writer.op("Size", [name], f"{name}.count")
        place = writer.op("Mod", [draw, size], f"{name}.places")
        elements = writer.op("Reshape", [name, flat], f"{name}.flat")
        writer.op("Gather", [elements, place], f"{name}.drawn")
        writer.show(f"{name}.drawn", TensorProto.FLOAT, [DRAWN])
        absolute = writer.op("Abs", [elements], f"{name}.abs")
        writer.op("ReduceMax", [absolute], f"{name}.largest", keepdims=0)
        writer.show(f"{name}.largest", TensorProto.FLOAT, [])
    for name in outputs:
        writer.op("Size", [name], f"{name}.size")
        writer.show(f"{name}.size", TensorProto.INT64, [])
    graph.node.extend(writer.nodes)
