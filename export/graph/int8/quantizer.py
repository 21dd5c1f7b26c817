"""Quantizes a graph to 8-bit integers with onnxruntime's quantizer.

The input of a layer passes a QuantizeLinear and a DequantizeLinear, its weight a DequantizeLinear
(QDQ): programs that support this compute the layer in integers, all others compute the same values
in float32. All zero points are 0, as TensorRT requires.
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
    # TensorRT has no 32-bit DequantizeLinear; onnxruntime quantizes a bias itself as it loads.
    "QuantizeBias": False,
    # A layer is followed by a residual sum, attention or a function, which need full precision.
    "OpTypesToExcludeOutputQuantization": list(KINDS),
}


def quantize(
    model: onnx.ModelProto, layers: Sequence[WeightLayer], ranges: Mapping[str, float]
) -> None:
    """Quantize layers of a float32 model to 8-bit integers, in place.

    Args:
        model: Traced and tidied, without bodies.
        layers: The layers to quantize.
        ranges: Input map of a layer -> its largest represented absolute value.
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
    quantizer = QDQQuantizer(
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
    quantized = quantizer.quantize_model()
    quantizer.model.topological_sort()
    _without_entries(quantized.graph, entries)
    del quantized.graph.value_info[:]
    model.graph.CopyFrom(quantized.graph)


def _own_inputs(graph: onnx.GraphProto, layers: Sequence[WeightLayer]) -> dict[str, WeightLayer]:
    """Give every layer an input of its own, so that other readers of the map keep full precision.

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
    """Remove the nodes that gave the layers their own inputs; restore the order."""
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in entries:
                node.input[place] = entries[name].source
    kept = [node for node in graph.node if node.output[0] not in entries]
    del graph.node[:]
    graph.node.extend(kept)
