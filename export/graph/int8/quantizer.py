"""Quantizes a graph to 8-bit integers with onnxruntime's quantizer.

The input of a layer passes a QuantizeLinear and a DequantizeLinear, its weight a DequantizeLinear
(QDQ): programs that support this compute the layer in integers, all others compute the same values
in float32. All zero points are 0, as TensorRT requires.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper

from ...execute.editing import drop_unread, replace_nodes
from .concats import find_concats
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

    joined = find_concats(model.graph, layers)
    work = onnx.ModelProto.FromString(model.SerializeToString())
    entries = _add_inputs(work.graph, layers)
    limits = {}
    for entry, source in entries.items():
        largest = np.float32(ranges[source])
        limits[entry] = (-largest, largest)
    quantizer = QDQQuantizer(
        work,
        per_channel=True,
        reduce_range=False,
        weight_qType=QuantType.QInt8,
        activation_qType=QuantType.QInt8,
        tensors_range=TensorsData(CalibrationMethod.MinMax, limits),
        nodes_to_quantize=[layer.node for layer in layers],
        nodes_to_exclude=[],
        op_types_to_quantize=list(KINDS),
        extra_options=dict(_OPTIONS),
    )
    quantized = quantizer.quantize_model()
    _remove_entries(quantized.graph, entries)
    _quantize_before_concats(quantized.graph, joined)
    _sort(quantized)
    del quantized.graph.value_info[:]
    model.graph.CopyFrom(quantized.graph)


def _sort(model: onnx.ModelProto) -> None:
    """Sort the nodes topologically; the sort of the quantizer ignores what subgraphs read."""
    ordered = ir.serde.deserialize_model(model).graph
    ordered.sort()
    places = {node.outputs[0].name: index for index, node in enumerate(ordered)}

    def find_place(node: onnx.NodeProto) -> int:
        return places[node.output[0]]

    replace_nodes(model.graph, sorted(model.graph.node, key=find_place))


def _add_inputs(graph: onnx.GraphProto, layers: Sequence[WeightLayer]) -> dict[str, str]:
    """Give the layers of a map an input of their own: its other readers keep full precision.

    Returns:
        The name of that input -> the map.
    """
    places = {layer.node: layer for layer in layers}
    entries: dict[str, str] = {}
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        layer = places.get(node.name)
        if layer is not None:
            entry = f"{layer.source}.input"
            if entry not in entries:
                identity = helper.make_node("Identity", [layer.source], [entry], entry)
                graph.node.append(identity)
                info = helper.make_tensor_value_info(entry, TensorProto.FLOAT, None)
                graph.value_info.append(info)
                entries[entry] = layer.source
            node.input[0] = entry
        graph.node.append(node)
    return entries


def _remove_entries(graph: onnx.GraphProto, entries: Mapping[str, str]) -> None:
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name in entries:
                node.input[index] = entries[name]
    nodes = [node for node in graph.node if node.output[0] not in entries]
    replace_nodes(graph, nodes)


def _quantize_before_concats(graph: onnx.GraphProto, joined: Mapping[str, Sequence[str]]) -> None:
    """Quantize the parts of joined maps in place of these; the order of the nodes is lost."""
    quantizers = {}
    readers = {}
    producers = {}
    for node in graph.node:
        producers[node.output[0]] = node
        if node.op_type == "QuantizeLinear":
            quantizers[node.input[0]] = node
        elif node.op_type == "DequantizeLinear":
            readers[node.input[0]] = node

    def find_rounded(name: str) -> str:
        output: str = readers[quantizers[name].output[0]].output[0]
        return output

    instead = {}
    for concatenated, parts in joined.items():
        scale = quantizers[concatenated].input[1:]
        for part in parts:
            if part not in quantizers:
                quantized = f"{part}.input_QuantizeLinear"
                back = f"{part}.input_DequantizeLinear"
                quantizers[part] = helper.make_node(
                    "QuantizeLinear", [part, *scale], [quantized], quantized
                )
                readers[quantized] = helper.make_node(
                    "DequantizeLinear", [quantized, *scale], [back], back
                )
                graph.node.extend([quantizers[part], readers[quantized]])
        producers[concatenated].input[:] = [find_rounded(part) for part in parts]
        instead[find_rounded(concatenated)] = concatenated
    for node in graph.node:
        node.input[:] = [instead.get(name, name) for name in node.input]
    concatenations = (quantizers[concatenated].output[0] for concatenated in joined)
    dropped = {*instead, *concatenations}
    nodes = [node for node in graph.node if node.output[0] not in dropped]
    replace_nodes(graph, nodes)
    drop_unread(graph)
