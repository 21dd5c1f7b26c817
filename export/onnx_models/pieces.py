"""The pieces of a file with attention, as graphs of ONNX."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import torch
from torch import nn
from torch.export import Dim

from ...plugins.operators.functions import operator_body
from ..attention.as_trained.parameters import AsTrained
from ..attention.mechanism import Mechanism
from ..attention.site import swap
from ..tracing.bodies import nodes_of_type, used_operators
from ..tracing.trace import trace_piece
from .cutting import fits_opset, nodes_of, raised, splice, unused_prefix
from .file_network import FileNetwork
from .network import Cut
from .reading import opset_of

OLDEST_WRITTEN, NEWEST_WRITTEN = 18, 20
"""The opsets that nodes of nystra are written for; later ones only add types to their operators."""

_IR_OF_FUNCTIONS = 8


@dataclass(frozen=True)
class Rewritten:
    """A file with nodes of nystra.

    Attributes:
        model: The model without bodies.
        notes: Other changes, one sentence each.
    """

    model: onnx.ModelProto
    notes: tuple[str, ...] = ()


def rewritten(
    source: onnx.ModelProto,
    network: FileNetwork,
    resolved: Mapping[str, Mechanism],
    left: Collection[str],
) -> Rewritten:
    """Return a file with the planned mechanisms in place of its attention.

    A piece is not replaced if all its sites are in ``left`` or as trained.

    Args:
        source: The file, which is not modified.
        network: The network of the file.
        resolved: Mechanism of every site of the network.
        left: Paths of sites that are not replaced.

    Raises:
        ExportError: A piece cannot be traced, or the file cannot be converted to the opset that it
            needs.
    """
    opset = opset_of(source)
    written = _written(opset)
    planned = swap(network, resolved, "operator")
    pieces = []
    for cut in network.cuts.values():
        if all(path in left or isinstance(resolved[path], AsTrained) for path in cut.sites):
            continue
        key = f"{cut.output} {written} {[str(resolved[path]) for path in cut.sites]}"
        if key not in network.pieces:
            module = planned.get_submodule(cut.module)
            network.pieces[key] = piece_model(cut, module, written)
        pieces.append(network.pieces[key])
    model, notes = onnx.ModelProto(), []
    model.CopyFrom(source)
    if opset < written and not all(_fits(piece, written, opset) for piece in pieces):
        model = raised(model, written)
        notes.append(
            f"the file's opset was raised from {opset} to {written}, which the nodes of nystra need"
        )
    for number, piece in enumerate(pieces):
        splice(model, piece, unused_prefix(model, f"nystra_{number}/"))
    model.ir_version = max(model.ir_version, _IR_OF_FUNCTIONS)
    return Rewritten(model, tuple(notes))


def _written(opset: int) -> int:
    """Return the opset that nodes for a model of some opset are written in."""
    return min(max(opset, OLDEST_WRITTEN), NEWEST_WRITTEN)


def attach_fitting_bodies(model: onnx.ModelProto) -> None:
    """Add to a model, in place, the body of every nystra operator that it uses, at its opset."""
    opset = opset_of(model)
    for name in used_operators(model):
        nodes = nodes_of_type(model, name)
        body = operator_body(name, _written(opset), nodes)
        for entry in body.opset_import:
            if entry.domain == "":
                entry.version = opset
        model.functions.append(body)


def piece_model(cut: Cut, module: nn.Module, opset: int) -> onnx.ModelProto:
    """Return a piece between its values, traced.

    Raises:
        ExportError: It cannot be traced.
    """
    inputs = tuple(
        torch.zeros(shape, dtype=dtype) for shape, dtype in zip(cut.shapes, cut.types, strict=True)
    )
    return trace_piece(module, inputs, _dynamic(cut.free), opset, cut.inputs, cut.output)


def _dynamic(free: Sequence[Sequence[int]]) -> tuple[dict[int, Any], ...] | None:
    if not any(free):
        return None
    return tuple(dict.fromkeys(axes, Dim.DYNAMIC) for axes in free)


def _fits(piece: onnx.ModelProto, written: int, opset: int) -> bool:
    """Whether a piece and the bodies of its operators have the same meaning at another opset."""
    parts: list[onnx.GraphProto | onnx.FunctionProto] = [piece.graph]
    parts += [
        operator_body(name, written, nodes_of_type(piece, name)) for name in used_operators(piece)
    ]
    return all(fits_opset(nodes_of(part), written, opset) for part in parts)
