"""Each change to PyTorch and onnxscript during a trace is still needed.

Where one of these tests fails after an update, the function that it names can go, or has lost what
it changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import pytest
import torch
from onnx import helper
from onnxscript import optimizer, rewriter
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.onnx._internal import _lazy_import
from torch.onnx._internal.exporter import _fx_passes, _schemas

from nystra.export.tracing.shortcuts import (
    constants_exactly,
    decompose_where_needed,
    promote_where_needed,
    signatures_once,
    translations_once,
    with_sides_of_one,
    with_small_constants,
    without_fake_cache,
    without_memory_formats,
    without_quadratic_rules,
)
from nystra.export.tracing.size_conditions import record_conditions
from nystra.export.tracing.torch_sizes import ShapeEnv
from nystra.models.torch_internals import FakeTensorMode
from small_graphs import model_of, weight

Context = Callable[[], contextlib.AbstractContextManager[None]]


class Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x


def program() -> ExportedProgram:
    return torch.export.export(Double(), (torch.zeros(2),))


def conditions(context: Context, computed: Callable[[Tensor], Tensor], *shape: int) -> str:
    """Return what PyTorch decides by the sizes of a tensor of this shape."""
    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment)
    tensor = mode.from_tensor(torch.zeros(shape))
    with context(), mode, torch.no_grad():
        computed(tensor)
    return " ".join(str(guard.expr) for guard in environment.guards)


def of_channels_last(x: Tensor) -> Tensor:
    return torch.conv2d(x.permute(0, 3, 1, 2), torch.zeros(4, 3, 3, 3))


def of_every_second(x: Tensor) -> Tensor:
    with without_memory_formats():
        return torch.conv2d(x, torch.zeros(4, 3, 3, 3), stride=2, padding=1).flatten(2)


@pytest.mark.parametrize(
    ("context", "computed", "shape"),
    [
        (without_memory_formats, of_channels_last, (1, 12, 16, 3)),
        (with_sides_of_one, of_every_second, (1, 3, 12, 16)),
    ],
    ids=["without_memory_formats", "with_sides_of_one"],
)
def test_sides_are_compared_with_1(
    context: Context, computed: Callable[[Tensor], Tensor], shape: tuple[int, ...]
) -> None:
    assert ", 1)" in conditions(contextlib.nullcontext, computed, *shape)
    assert ", 1)" not in conditions(context, computed, *shape)


def test_what_operators_return_is_stored_by_comparing_sizes() -> None:
    def count_decisions(context: Context) -> int:
        with context():
            mode = FakeTensorMode(shape_env=ShapeEnv())
        tensor = mode.from_tensor(torch.zeros(1, 3, 12, 16))
        with record_conditions("this test") as decided, mode, torch.no_grad():
            (tensor.permute(0, 2, 3, 1) + 1.0).flatten(1)
        return len(decided)

    assert count_decisions(contextlib.nullcontext) > count_decisions(without_fake_cache)


def test_values_of_few_numbers_are_unknown() -> None:
    class Divided(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            divisor = torch.tensor([0.5, 2.0, 3.0])
            return x if (divisor == 0).any() else x / divisor

    def trace() -> None:
        torch.export.export(Divided(), (torch.rand(2, 3),), strict=False)

    with pytest.raises(Exception, match="data-dependent"):
        trace()
    with with_small_constants():
        trace()


@pytest.mark.full
def test_translations_are_read_at_each_export() -> None:
    def read_twice() -> bool:
        apis = _lazy_import.onnxscript_apis
        return apis.get_torchlib_ops() is not apis.get_torchlib_ops()

    assert read_twice()
    with translations_once():
        assert not read_twice()


def test_a_signature_that_is_noted_is_derived_again() -> None:
    def translated(x: Any) -> Any:
        return x

    vars(translated)["_pt_onnx_signature"] = "noted"
    assert _schemas.op_signature_from_function(translated, "domain", "name") != "noted"
    with signatures_once():
        assert _schemas.op_signature_from_function(translated, "domain", "name") == "noted"


def test_a_rule_compares_every_node_with_every_other() -> None:
    def names() -> list[str | None]:
        return [rule.name for rule in rewriter._DEFAULT_REWRITE_RULES]

    assert "SlicesSplit" in names()
    with without_quadratic_rules():
        assert "SlicesSplit" not in names()


@pytest.mark.parametrize(("operator", "number"), [("Add", 1e-8), ("Mul", 1.000008)])
def test_a_number_is_taken_for_zero_or_one(operator: str, number: float) -> None:
    def operators() -> list[str]:
        nodes = [helper.make_node(operator, ["x", "number"], ["y"])]
        model = ir.from_proto(model_of(nodes, [weight("number", value=number)]))
        optimizer.optimize_ir(model)
        return [node.op_type for node in model.graph]

    assert operators() != [operator]
    with constants_exactly():
        assert operators() == [operator]


@pytest.mark.full
def test_a_program_that_needs_no_decomposition_is_traced_again() -> None:
    traced = program()
    assert traced.run_decompositions({}) is not traced
    with decompose_where_needed(traced):
        assert traced.run_decompositions({}) is traced


def test_types_are_promoted_in_a_program_of_one_type(monkeypatch: pytest.MonkeyPatch) -> None:
    traced, seen = program(), []
    run = fx.Interpreter.run_node

    def counted(self: fx.Interpreter, node: fx.Node) -> Any:
        seen.append(node)
        return run(self, node)

    monkeypatch.setattr(fx.Interpreter, "run_node", counted)
    _fx_passes.insert_type_promotion_nodes(traced.graph_module)
    assert seen
    seen.clear()
    with promote_where_needed(traced, in_pieces=False):
        _fx_passes.insert_type_promotion_nodes(traced.graph_module)
    assert not seen
