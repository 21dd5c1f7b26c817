"""Maps of 8-bit integers, as OpenVINO's low-precision transformations expect them.

An ONNX file rounds a map by QuantizeLinear and DequantizeLinear, which are read as a FakeQuantize
to -128..127, conversions and a product with the scale. If a Concat is before or after these,
OpenVINO 2026.4 computes the maps in unsigned integers and loses their negative values. A
FakeQuantize to the range of the map itself is right.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.arrays import Array


def merge_scales(model: Any) -> int:
    """Let every FakeQuantize of a map give the values of the map, in place.

    Maps with a zero point are left alone.

    Args:
        model: A network of OpenVINO.

    Returns:
        The number of nodes.
    """
    from openvino import opset13 as opset

    count = 0
    for node in model.get_ordered_ops():
        if node.get_type_name() != "FakeQuantize":
            continue
        last = _only_reader(_only_reader(node, "Convert"), "Convert")
        shifted = _only_reader(last, "Subtract")
        if shifted is not None:
            point = _constant(shifted.input_value(1))
            last = shifted if point is not None and not point.any() else None
        scaled = _only_reader(last, "Multiply")
        if scaled is None:
            continue
        low, high = (_constant(node.input_value(index)) for index in (3, 4))
        scale = _constant(scaled.input_value(1))
        if scale is None or low is None or high is None or scale.size != 1:
            continue
        outputs = [opset.constant(np.asarray(end * scale, np.float32)) for end in (low, high)]
        levels = node.get_attributes()["levels"]
        inputs = [node.input_value(index) for index in range(3)]
        merged = opset.fake_quantize(*inputs, *outputs, levels)
        merged.set_friendly_name(node.get_friendly_name())
        for entry in scaled.output(0).get_target_inputs():
            entry.replace_source_output(merged.output(0))
        count += 1
    return count


def _only_reader(node: Any, kind: str) -> Any:
    if node is None:
        return None
    readers = [entry.get_node() for entry in node.output(0).get_target_inputs()]
    return readers[0] if len(readers) == 1 and readers[0].get_type_name() == kind else None


def _constant(value: Any) -> Array | None:
    node = value.get_node()
    while node.get_type_name() in ("Convert", "Reshape"):
        node = node.input_value(0).get_node()
    return node.data if node.get_type_name() == "Constant" else None
