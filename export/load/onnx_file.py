"""An ONNX file of another program as a loaded network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from ...core.errors import NystraError, TraceError, UnsupportedModelError, foreign_text
from ...core.files.reading import file_sha256
from ...core.ports.port import Port, Shape
from ...models.checkpoints.checkpoint import Checkpoint
from ...models.facts import Facts
from ...models.loading import LoadedModel
from ...plugins.domain import opset_of
from ...runtime.model.onnx_graph import read_facts
from ...runtime.model.onnx_header import read_onnx_header
from ..attention.site import common_window
from ..execute.parts import TooLargeError, find_inputs, nodes_of
from ..execute.sized import Sized
from ..rewrite.attention_search import describe_unreplaced
from ..rewrite.graph_network import GraphNetwork
from ..rewrite.sources import FileSource
from .channels_first import with_channels_first
from .fixed import fix_facts
from .onnx_facts import facts_of
from .onnx_reading import OLDEST_SEARCHED, read_model
from .searching import at_shapes, network_of, search_attention

_SMALL = {"channels": 3, "height": 64, "width": 64}
"""Default lengths of the axes of an image, if the file has no fixed ones; others are 1."""


def load_onnx(
    path: Path,
    hyper: Mapping[str, Any],
    static: Sequence[int] | None = None,
    opset: int | None = None,
) -> LoadedModel:
    """Read a file of another program; its attention is found and becomes sites.

    Args:
        path: The file.
        hyper: Hyper-parameters, which an ONNX file does not accept.
        static: The shape that its input gets, or None.
        opset: The opset that it is converted to, or None: it is raised only where that is needed.

    Raises:
        NystraError: The file is damaged or hostile, or hyper-parameters are given.
        UnsupportedModelError: A part of it is not supported, or needs too much memory.
    """
    if hyper:
        raise NystraError(
            f"`{next(iter(hyper))}` does not apply to an ONNX file, whose graph is complete; "
            "omit it"
        )
    source = read_file(path, opset)
    try:
        network, facts, warnings = _search(source, static)
    except UnsupportedModelError as error:
        if str(path) in str(error):
            raise
        raise UnsupportedModelError(f"{path}: {error}; see docs/own.md") from error
    facts = replace(facts, window=common_window(network))
    checkpoint = Checkpoint(path, file_sha256(path, "the model"), {})
    return LoadedModel(network, facts, {}, checkpoint, warnings, unserved=warnings)


def read_file(path: Path, required: int | None = None) -> FileSource:
    """Return a file with one output, of an opset that is searched.

    Raises:
        NystraError: The file is damaged or hostile.
        UnsupportedModelError: A part of it is not supported.
    """
    read_onnx_header(path)
    model = read_model(path)
    inputs, outputs = len(find_inputs(model)), len(model.graph.output)
    if not inputs or outputs != 1:
        raise UnsupportedModelError(
            f"{path} has {inputs} inputs and {outputs} outputs: expected an image as an input "
            "and one output; export it again with these; see docs/own.md"
        )
    opset = opset_of(model)
    needed = required or max(opset, OLDEST_SEARCHED)
    other = None if opset == needed else _convert(path, model, needed)
    return FileSource(
        path,
        model,
        ir.from_proto(model if other is None else other),
        other,
        is_converted=other is not None and required is not None,
    )


def _convert(path: Path, model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """Return a model converted to another opset; its values keep their names.

    Operators that an older opset does not have become what ONNX defines them by, and functions of
    the file, which the converter leaves out, their nodes.
    """
    from onnx import inliner, version_converter

    unknown = set[tuple[str, str]]()
    for node in nodes_of(model.graph):
        if not node.domain and not onnx.defs.has(node.op_type, opset):
            unknown.add((node.domain, node.op_type))
    try:
        if model.functions:
            model = inliner.inline_local_functions(model, convert_version=True)
        if unknown:
            model = inliner.inline_selected_functions(
                model, sorted(unknown), inline_schema_functions=True
            )
        converted: onnx.ModelProto = version_converter.convert_version(model, opset)
    except RuntimeError as error:
        reason = foreign_text(error).partition("\n")[0]
        raise UnsupportedModelError(
            f"{path} has opset {opset_of(model)}, and cannot be converted to {opset}, which is "
            f"asked for, or which nodes of nystra need: {reason:.200}; see docs/own.md"
        ) from error
    return converted


def _with_shapes(source: FileSource, sized: Sized) -> None:
    for model in filter(None, (source.model, source.raised)):
        del model.graph.value_info[:]
        for declared in (*find_inputs(model), *model.graph.output):
            sides = list(sized.shapes[declared.name])
            kind = declared.type.tensor_type.elem_type
            info = onnx.helper.make_tensor_value_info(declared.name, kind, sides)
            declared.CopyFrom(info)


def _search(
    source: FileSource, static: Sequence[int] | None
) -> tuple[GraphNetwork, Facts, tuple[str, ...]]:
    """Return the network of a file with its sites, its facts, and what to warn of."""
    model, stated = source.graph_model, read_facts(source.path).inputs
    first: Sized | None
    try:  # before onnxruntime opens the whole file
        shapes = {port.name: _small_shape(port) for port in stated}
        first = at_shapes(model, shapes)
    except TooLargeError:
        raise
    except UnsupportedModelError:  # it may take other sizes
        first = None
    measured = facts_of(source.path)
    facts, sizes = measured.facts, measured.sizes
    if measured.channels_last:
        source, first = with_channels_first(source, measured.channels_last), None
        model = source.graph_model
    named = {str(value.name): value for value in model.graph.inputs}
    ordered = [named.pop(port.name) for port in facts.inputs]  # as the arguments of a network
    model.graph.inputs[:] = [*ordered, *named.values()]
    if static is not None:
        facts = fix_facts(facts, static)
        sizes = ()
        shapes = {port.name: port.shape({}) for port in facts.inputs}
        first = at_shapes(model, shapes)
        _with_shapes(source, first)
    if not any(
        "Softmax" in node.op_type or "Attention" in node.op_type or node.op_type == "Exp"
        for node in model.graph
    ):
        return network_of(source), facts, (*measured.inputs, *sizes)
    try:
        result = search_attention(model, facts, first)
    except TraceError as error:
        text = f"its attention stays as it is in the file: {error}"
        return network_of(source), facts, (*measured.inputs, *sizes, text)
    warnings = (*measured.inputs, *sizes, *describe_unreplaced(result.attentions))
    return network_of(source, result.replacements), facts, warnings


def _small_shape(port: Port) -> Shape:
    lengths = {axis: length for axis, length in port.lengths.items() if length > 0}
    lengths = _SMALL | lengths
    return tuple(lengths.get(axis, 1) for axis in port.axes)
