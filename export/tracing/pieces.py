"""Attention of a site as nodes of a graph: traced once, and copied to every site of its form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from onnx import helper, numpy_helper
from torch import Tensor, nn
from torch.export import Dim

from ...models.torch_internals import make_fx
from ...plugins.domain import DOMAIN
from ...plugins.operators import OPERATORS
from ...plugins.operators.schema import VERSION, node_attributes
from ..execute.parts import make_constant
from .trace import trace_piece

_OUTPUT = "out"
_NO_INPUT = "aten.new_zeros.default"
"""Makes the tensor that stands for an input of an operator that is not used."""


def trace_attention(
    module: nn.Module,
    examples: Sequence[Tensor],
    free: Sequence[Sequence[int]],
    opset: int,
    *,
    has_weights: bool,
    fused: bool = False,
) -> onnx.ModelProto:
    """Return a module with one result as a model.

    Args:
        module: Computes attention by operators of nystra.
        examples: Inputs to trace with.
        free: The free axes of each input.
        opset: Version of the default domain, 18 or later.
        has_weights: Whether it reads tensors of its own. Otherwise, if it is one operator, its
            node is written without PyTorch's exporter.
        fused: As of `trace_network`.

    Raises:
        ExportError: It cannot be traced.
    """
    names = [f"in_{at}" for at in range(len(examples))]
    if not has_weights:
        node = _write_single_node(module, examples, names, _OUTPUT, opset)
        if node is not None:
            return node
    dynamic = None
    if any(free):
        dynamic = tuple(dict.fromkeys(axes, Dim.DYNAMIC) for axes in free)
    return trace_piece(module, tuple(examples), dynamic, opset, names, _OUTPUT, fused=fused)


def copy_piece(
    piece: onnx.ModelProto, node: ir.Node, tensors: Mapping[str, Tensor]
) -> list[ir.Node]:
    """Return the nodes of a traced mechanism between the values of the node of a site.

    Args:
        piece: The mechanism.
        node: The node of the site.
        tensors: Tensors of the site that the mechanism takes after the inputs of the node, by name.

    Returns:
        The nodes, of which one gives the output of the node's name.
    """
    model = ir.from_proto(piece)
    prefix = f"{node.outputs[0].name}/"
    inputs_of_site = [value for value in node.inputs if value is not None]
    values: dict[ir.Value, ir.Value] = {}
    for ir_value in model.graph.initializers.values():
        values[ir_value] = make_constant(prefix + str(ir_value.name), ir_value.const_value)
    inputs = list(model.graph.inputs)
    values.update(zip(inputs, inputs_of_site, strict=False))
    more_inputs = inputs[len(inputs_of_site) :]
    named_tensors = zip(more_inputs, tensors.items(), strict=False)
    for value, (name, tensor) in named_tensors:
        constant = ir.tensor(tensor.numpy())
        values[value] = make_constant(prefix + name, constant)
    copies = []
    uses = 0
    for inner in model.graph:
        outputs = []
        for ir_value in inner.outputs:
            is_result = ir_value is model.graph.outputs[0]
            values[ir_value] = ir.Value(
                name=node.outputs[0].name if is_result else prefix + str(ir_value.name)
            )
            outputs.append(values[ir_value])
        name = prefix + str(inner.name)
        if inner.domain == DOMAIN:
            uses += 1
            name = str(node.name) if uses == 1 else f"{node.name}#{uses}"
        inner_inputs = [None if ir_value is None else values[ir_value] for ir_value in inner.inputs]
        attributes = list(inner.attributes.values())
        copies.append(
            ir.Node(
                inner.domain, inner.op_type, inner_inputs, attributes, outputs=outputs, name=name
            )
        )
    return copies


def _write_single_node(
    module: nn.Module,
    examples: Sequence[Tensor],
    names: Sequence[str],
    output: str,
    opset: int,
) -> onnx.ModelProto | None:
    """Return a module as a model of one node of nystra; None if it computes anything else.

    Args:
        module: A module with one result.
        examples: Inputs to run it with; nothing is computed.
        names: Names of the inputs.
        output: Name of the result.
        opset: Version of the default domain.
    """
    with torch.no_grad():
        graph = make_fx(module, tracing_mode="fake")(*examples).graph
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    own = [node for node in nodes if str(node.target).startswith(f"{DOMAIN}.")]
    empty = [node for node in nodes if str(node.target) == _NO_INPUT]
    zeros = [node for node in empty if node.args[1] == [1, 1]]
    output_node = next(iter(graph.find_nodes(op="output")))
    result = output_node.args[0]
    reads_zeros_alone = len(own) == 1 and len(zeros) == len(nodes) - 1
    if not reads_zeros_alone or result is not own[0]:
        return None
    placeholders = graph.find_nodes(op="placeholder")
    input_names = dict(zip(placeholders, names, strict=True))
    input_names |= {node: f"none_{at}" for at, node in enumerate(zeros)}
    schema = own[0].target._schema
    folder = schema.name.partition("::")[2]
    operator = next(name for name, folder_of_row in OPERATORS.items() if folder_of_row == folder)
    arguments = [argument.name for argument in schema.arguments]
    positional = zip(arguments, own[0].args, strict=False)
    values = dict(positional) | own[0].kwargs
    inputs = [input_names[value] for value in values.values() if value in input_names]
    rest: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(value, torch.fx.Node):
            rest[name] = value
    dtype = examples[0].numpy().dtype
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    none = np.zeros((1, 1), dtype)
    attributes: dict[str, Any] = {**node_attributes(operator, **rest)}
    node = helper.make_node(operator, inputs, [output], folder, None, DOMAIN, **attributes)
    model: onnx.ModelProto = helper.make_model(
        helper.make_graph(
            [node],
            "piece",
            [helper.make_tensor_value_info(name, kind, None) for name in names],
            [helper.make_tensor_value_info(output, kind, None)],
            [numpy_helper.from_array(none, input_names[node]) for node in zeros],
        ),
        opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, VERSION)],
    )
    return model
