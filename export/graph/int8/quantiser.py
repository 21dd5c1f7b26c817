"""8-bit integers written into a graph by onnxruntime's own quantiser.

Before and after the input of a layer stand a QuantizeLinear and a DequantizeLinear, before its
weight a DequantizeLinear (QDQ): programs that know them compute the layer in integers, all others
in float32 what the integers give. All zero points are 0, as TensorRT asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from .layers import KINDS, WeightLayer

_OPTIONS = {
    "ActivationSymmetric": True,
    "WeightSymmetric": True,
    # TensorRT has no 32-bit DequantizeLinear; onnxruntime quantises a bias itself as it loads.
    "QuantizeBias": False,
    # What follows a layer is a residual sum, attention or a function: it wants all digits.
    "OpTypesToExcludeOutputQuantization": list(KINDS),
}


def quantise(
    model: onnx.ModelProto, layers: Sequence[WeightLayer], ranges: Mapping[str, float]
) -> None:
    """Let layers of a float32 model compute in 8-bit integers, in place.

    Args:
        model: Traced and tidied, without bodies.
        layers: Those that are to.
        ranges: Map before a layer -> the largest absolute value of it that is held.
    """
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization.calibrate import CalibrationMethod, TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    work = onnx.ModelProto.FromString(model.SerializeToString())
    entries = _own_inputs(work.graph, layers)
    held = {
        entry: (np.float32(-ranges[layer.source]), np.float32(ranges[layer.source]))
        for entry, layer in entries.items()
    }
    quantiser = QDQQuantizer(
        work,
        per_channel=True,
        reduce_range=False,
        weight_qType=QuantType.QInt8,
        activation_qType=QuantType.QInt8,
        tensors_range=TensorsData(CalibrationMethod.MinMax, held),
        nodes_to_quantize=[layer.node for layer in layers],
        nodes_to_exclude=[],
        op_types_to_quantize=list(KINDS),
        extra_options=dict(_OPTIONS),
    )
    quantised = quantiser.quantize_model()
    quantiser.model.topological_sort()
    _without_entries(quantised.graph, entries)
    del quantised.graph.value_info[:]
    model.graph.CopyFrom(quantised.graph)


def _own_inputs(graph: onnx.GraphProto, layers: Sequence[WeightLayer]) -> dict[str, WeightLayer]:
    """Give every layer a map of its own, so that what else reads the map keeps all its digits.

    Returns:
        The name of that map -> the layer.
    """
    places = {layer.node: layer for layer in layers}
    entries: dict[str, WeightLayer] = {}
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        layer = places.get(node.name)
        if layer is not None:
            entry = f"{node.name}.input"
            graph.node.append(helper.make_node("Identity", [layer.source], [entry], entry))
            graph.value_info.append(helper.make_tensor_value_info(entry, TensorProto.FLOAT, None))
            node.input[0] = entry
            entries[entry] = layer
        graph.node.append(node)
    return entries


def _without_entries(graph: onnx.GraphProto, entries: Mapping[str, WeightLayer]) -> None:
    """Take the nodes out again that gave the layers maps of their own; restore the order."""
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in entries:
                node.input[place] = entries[name].source
    kept = [node for node in graph.node if node.output[0] not in entries]
    del graph.node[:]
    graph.node.extend(kept)
