"""Searches modules for attention, as their graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from nystra.export.differences import relative_difference
from nystra.export.load.module_graph import simplify
from nystra.export.load.searching import at_shapes, network_of
from nystra.export.rewrite.attention_search import FoundAttention, SearchResult, find_attention
from nystra.export.rewrite.sources import ModuleSource
from nystra.export.tracing.programs import export_program, record_program
from nystra.export.tracing.trace import convert_program

AXES = {0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC}


def noise(*shape: int) -> Tensor:
    """Return the same noise for a shape."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


@dataclass
class Searched:
    """A module with what is found in its graph."""

    module: nn.Module
    model: ir.Model
    found: SearchResult
    network: Any

    @property
    def attentions(self) -> Sequence[FoundAttention]:
        """The attentions, in their order."""
        return self.found.attentions

    def agrees(self, image: Tensor) -> bool:
        """Return whether the graph with all its sites gives what the module does."""
        with torch.no_grad():
            expected = self.module(image)
        return relative_difference(self.network.with_sites([image]), [expected]) < 1e-5


def graph_of(module: nn.Module, program: ExportedProgram, copied: Any = None) -> ir.Model:
    """Return the plain graph of a module from an image."""
    model = convert_program(program, ["image"], ["output"], 20, copied or {}, module)
    simplify(model)
    return model


def searched(
    module: nn.Module, model: ir.Model, first: Sequence[int], second: Sequence[int] | None
) -> Searched:
    """Return a module with what is found in its graph at one or two sizes."""
    one = at_shapes(model, {"image": tuple(first)})
    other = None if second is None else at_shapes(model, {"image": tuple(second)})
    found = find_attention(model, one, other)
    source = ModuleSource(Path("toy"), module, model)
    return Searched(module, model, found, network_of(source, found.replacements))


def of_one_size(module: nn.Module, *shape: int) -> Searched:
    """Return what is found in the graph of one run."""
    model = graph_of(module, record_program(module, (noise(*shape),)))
    return searched(module, model, shape, None)


def of_any_size(
    module: nn.Module, first: Sequence[int], second: Sequence[int], axes: Any = None
) -> Searched:
    """Return what is found in the graph for images of any size."""
    program, copied = export_program(module, (noise(3, 3, 32, 48),), (axes or AXES,))
    return searched(module, graph_of(module, program, copied), first, second)
