"""The search on the CPU kernel, as a function of torch tensors: for the PSAL benchmarks."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from onnx import TensorProto, helper
from torch import Tensor

from nystra.plugins.domain import DOMAIN
from nystra.plugins.library import library_path
from nystra.plugins.operators.schema import VERSION, node_attributes

NAMES = ("query", "key", "query_mask", "key_mask", "start")


def kernel_search(*inputs: Tensor, **attributes: int) -> tuple[Tensor, Tensor]:
    """Return index and score of ``NystraPatchMatch`` as the operator library computes them.

    Inputs and attributes are those of ``torch.ops.nystra.patch_match``; float32. As many threads
    as PyTorch uses.

    Raises:
        FileNotFoundError: The library is not built.
    """
    session = _session(torch.get_num_threads(), tuple(sorted(attributes.items())))
    feeds = {
        name: np.ascontiguousarray(tensor.detach().cpu().numpy())
        for name, tensor in zip(NAMES, inputs, strict=True)
    }
    index, score = session.run(None, feeds)
    return torch.from_numpy(index), torch.from_numpy(score)


@functools.cache
def _session(threads: int, attributes: tuple[tuple[str, int], ...]) -> Any:
    node_values: dict[str, Any] = node_attributes("NystraPatchMatch", **dict(attributes))
    node = helper.make_node(
        "NystraPatchMatch", list(NAMES), ["index", "score"], domain=DOMAIN, **node_values
    )
    kinds = {"start": TensorProto.INT32, "index": TensorProto.INT32}

    def value(name: str) -> Any:
        shape = [f"{name}{axis}" for axis in range(4)]
        return helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape)

    outputs = [value(name) for name in node.output]
    graph = helper.make_graph([node], "search", [value(name) for name in NAMES], outputs)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, VERSION)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(str(library_path()))
    return ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
