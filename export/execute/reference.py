"""Computes one node of ONNX by the reference of ONNX itself."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import onnx

from ...core.arrays import Array


def compute_node(node: onnx.NodeProto, inputs: Sequence[Array | None], opset: int) -> list[Array]:
    """Return the results of a node of ONNX's own domain.

    Args:
        node: The node, without a subgraph.
        inputs: Its inputs; None for one that is omitted.
        opset: Its opset.
    """
    nameless = onnx.NodeProto()
    nameless.CopyFrom(node)
    nameless.name = ""
    del nameless.metadata_props[:]
    names = enumerate(node.input)
    nameless.input[:] = [f"i{place}" if name else "" for place, name in names]
    places = range(len(node.output))
    nameless.output[:] = [f"o{place}" for place in places]
    feeds = {f"i{place}": array for place, array in enumerate(inputs) if array is not None}
    evaluator = _open_reference(nameless.SerializeToString(), opset)
    results = evaluator.run(None, feeds, attributes={})
    return [np.asarray(array) for array in results]


@functools.lru_cache(64)
def _open_reference(content: bytes, opset: int) -> onnx.reference.ReferenceEvaluator:
    from onnx.reference import ReferenceEvaluator

    node = onnx.NodeProto.FromString(content)
    inputs = [name for name in node.input if name]
    opsets = [onnx.helper.make_opsetid("", opset)]
    function = onnx.helper.make_function("node", "node", inputs, node.output, [node], opsets)
    return ReferenceEvaluator(function)
