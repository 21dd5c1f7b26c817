"""A mechanism that is one operator becomes its node, without PyTorch's exporter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from ...plugins.domain import DOMAIN
from ...plugins.operators import OPERATORS
from ...plugins.operators.schema import VERSION, node_attributes

_NO_INPUT = "aten.new_zeros.default"
"""Makes the tensor that stands for an input of an operator that is not used."""


def single_node(
    module: nn.Module, given: Sequence[Tensor], names: Sequence[str], output: str, opset: int
) -> onnx.ModelProto | None:
    """Return a module as a model of one node of nystra; None if it computes anything else.

    Args:
        module: A module with one result.
        given: Inputs to run it with; nothing is computed.
        names: Names of the inputs.
        output: Name of the result.
        opset: Version of the default domain.
    """
    with torch.no_grad():
        graph = make_fx(module, tracing_mode="fake")(*given).graph
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    own = [node for node in nodes if str(node.target).startswith(f"{DOMAIN}.")]
    zeros = [node for node in nodes if str(node.target) == _NO_INPUT and node.args[1] == [1, 1]]
    result = next(iter(graph.find_nodes(op="output"))).args[0]
    if len(own) != 1 or len(own) + len(zeros) != len(nodes) or result is not own[0]:
        return None
    taken = dict(zip(graph.find_nodes(op="placeholder"), names, strict=True))
    taken |= {node: f"none_{at}" for at, node in enumerate(zeros)}
    folder = own[0].target._schema.name.partition("::")[2]
    operator = next(name for name, known in OPERATORS.items() if known == folder)
    arguments = [argument.name for argument in own[0].target._schema.arguments]
    values = dict(zip(arguments, own[0].args, strict=False)) | own[0].kwargs
    inputs = [taken[value] for value in values.values() if value in taken]
    rest: dict[str, Any] = {k: v for k, v in values.items() if not isinstance(v, torch.fx.Node)}
    kind = helper.np_dtype_to_tensor_dtype(given[0].numpy().dtype)
    none = np.zeros((1, 1), given[0].numpy().dtype)
    attributes: dict[str, Any] = {**node_attributes(operator, **rest)}
    node = helper.make_node(operator, inputs, [output], folder, None, DOMAIN, **attributes)
    model: onnx.ModelProto = helper.make_model(
        helper.make_graph(
            [node],
            "piece",
            [helper.make_tensor_value_info(name, kind, None) for name in names],
            [helper.make_tensor_value_info(output, kind, None)],
            [numpy_helper.from_array(none, taken[node]) for node in zeros],
        ),
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, VERSION)],
    )
    return model
