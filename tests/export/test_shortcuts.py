"""Shortcuts of a trace: no operator is decomposed needlessly, no rule is lost permanently."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnxscript import rewriter
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.onnx._internal.exporter import _fx_passes

from conformance_models import session
from nystra.export.tracing.shortcuts import (
    decompose_where_needed,
    without_quadratic_rules,
)
from nystra.export.tracing.trace import trace_piece

aten = torch.ops.aten
ADDED = {aten.add.Tensor: lambda a, b: aten.sub.Tensor(a, -b)}
WRITTEN = {aten.add.Tensor: lambda a, b: a.clone().add_(b)}
HALVED = {aten.split.Tensor: lambda x, size: (x[:size], aten.mul.Tensor(x[size:], 1.0))}


class Sum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x


class Parts(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return torch.split(x, 1)


class Turned(nn.Module):
    """Operators that no table of decompositions names."""

    def forward(self, x: Tensor) -> Tensor:
        mean, variance = torch.zeros(2), torch.ones(2)
        x = torch.batch_norm(x.expand(1, 2, 2), None, None, mean, variance, False, 0.1, 1e-5, False)
        return x.movedim(1, 2)[0]


class Rounded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.float16).to(torch.float32)


class InPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.clone().mul_(2)


class Picked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.index_select(0, (torch.arange(3) + 1).remainder(2))


class Masked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(2)
        return x.masked_fill((places >= 1) & (places < 2), 0.25) + (places > 0).to(x.dtype)


class Compared(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.masked_fill(torch.arange(2) > 0.5, 0.25)


class Places(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.arange(2)


class Halves(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.arange(2) / 4


def decomposed(module: nn.Module, table: dict[Any, Any]) -> tuple[ExportedProgram, bool]:
    """Return a decomposed program, and whether it is the traced one."""
    traced = torch.export.export(module, (torch.zeros(2),))
    with decompose_where_needed(traced):
        result = traced.run_decompositions(table)
    return result, result is traced


def test_a_program_without_such_operators_is_not_traced_again() -> None:
    assert decomposed(Sum(), {})[1]


@pytest.mark.parametrize(
    ("module", "table", "same"),
    [
        (Sum(), ADDED, True),
        (Sum(), WRITTEN, True),
        (Parts(), HALVED, True),
        (Turned(), {}, True),
        (InPlace(), {}, False),
    ],
    ids=["one result", "by a write", "several results", "in no table", "in place"],
)
def test_an_operator_is_decomposed_alone_if_that_can_be(
    module: nn.Module, table: dict[Any, Any], same: bool
) -> None:
    result, is_traced = decomposed(module, table)
    assert is_traced == same
    targets = {node.target for node in result.graph.nodes}
    assert not any(getattr(t, "_schema", None) and t._schema.is_mutable for t in targets)
    if table is not WRITTEN:
        assert not targets & {aten.add.Tensor, aten.split.Tensor}
    assert not targets & {aten.batch_norm.default, aten.movedim.int}
    named = [output.arg.name for output in result.graph_signature.output_specs]
    assert named == [str(node) for node in result.graph.output_node().args[0]]
    x = torch.rand(2)
    expected = module(x)
    assert torch.equal(torch.stack([*result.module()(x)]), torch.stack([*expected]))


def test_a_program_is_decomposed_whole_where_an_operator_alone_cannot_be() -> None:
    calls: list[Tensor] = []

    def failing_once(a: Tensor, b: Tensor) -> Tensor:
        calls.append(a)
        if len(calls) == 1:
            raise RuntimeError("it needs more than its values")
        return aten.sub.Tensor(a, -b)

    result, same = decomposed(Sum(), {aten.add.Tensor: failing_once})
    assert not same
    assert "aten.add.Tensor" not in {str(node.target) for node in result.graph.nodes}


@pytest.mark.full
def test_an_operator_without_translation_is_decomposed_after_all() -> None:
    graph = fx.symbolic_trace(Rounded())
    model = trace_piece(graph, (torch.zeros(2),), None, 20, ["x"], "y")
    assert "Cast" in {node.op_type for node in model.graph.node}


@pytest.mark.parametrize(
    ("module", "mixes"),
    [
        *((module, False) for module in (Sum(), Picked(), Masked())),
        *((module, True) for module in (Places(), Halves(), Compared())),
    ],
)
def test_types_are_promoted_where_they_are_mixed(
    module: nn.Module, mixes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    promote, promoted = _fx_passes.insert_type_promotion_nodes, []

    def counted(graph: fx.GraphModule) -> None:
        promoted.append(graph)
        promote(graph)

    monkeypatch.setattr(_fx_passes, "insert_type_promotion_nodes", counted)
    x = torch.rand(2)
    model = trace_piece(module, (x,), None, 20, ["x"], "y")
    assert bool(promoted) == mixes
    np.testing.assert_array_equal(session(model).run(None, {"x": x.numpy()})[0], module(x))


def test_the_rule_that_compares_all_slices_is_back_afterwards() -> None:
    before = rewriter._DEFAULT_REWRITE_RULES
    with without_quadratic_rules():
        assert len(rewriter._DEFAULT_REWRITE_RULES) == len(before) - 1
    assert rewriter._DEFAULT_REWRITE_RULES is before
