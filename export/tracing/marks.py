"""Marks of parts of a graph that are written once, and calls of these parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx
import torch
from onnxscript.values import Op, Opset
from torch import Tensor

DOMAIN = "nystra.marks"
"""Domain of marks and calls while a graph is traced; the operator of each one is its name."""

ENTER, LEAVE = "enter", "leave"
"""Prefixes of the names of marks, before the number of the part."""


@torch.library.custom_op(
    "nystra_marks::mark", mutates_args=(), schema="(Tensor[] values, str name) -> Tensor[]"
)
def _mark(values: Sequence[Tensor], name: str) -> list[Tensor]:
    return [value.clone() for value in values]


@_mark.register_fake
def _(values: Sequence[Tensor], name: str) -> list[Tensor]:
    return [torch.empty_like(value) for value in values]


@torch.library.custom_op(
    "nystra_marks::call",
    mutates_args=(),
    schema="(Tensor[] values, SymInt[] sizes, int[] ranks, str name) -> Tensor[]",
)
def _call(values: Sequence[Tensor], sizes: Any, ranks: Any, name: str) -> list[Tensor]:
    raise NotImplementedError(f"{name} is a placeholder in a traced graph and cannot be computed")


@_call.register_fake
def _(values: Sequence[Tensor], sizes: Any, ranks: Any, name: str) -> list[Tensor]:
    sides = iter(sizes)
    outputs = []
    for rank in ranks:
        shape = [next(sides) for _ in range(rank)]
        outputs.append(values[0].new_empty(shape))
    return outputs


MARK = torch.ops.nystra_marks.mark.default
"""(values, name) -> the same values; ``enter_3`` begins part 3, ``leave_3`` ends it."""

CALL = torch.ops.nystra_marks.call.default
"""(values, sizes, ranks, name) -> tensors of these ranks; their sizes are in one list."""


def mark_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the translations of marks and calls for ``torch.onnx.export``."""
    return {MARK: _write_mark, CALL: _write_call}


def _write_mark(values: Sequence[Any], name: str) -> Any:
    return _node(name, values, len(values))


def _write_call(values: Sequence[Any], sizes: Any, ranks: Sequence[int], name: str) -> Any:
    return _node(name, values, len(ranks))


def _node(name: str, inputs: Sequence[Any], outputs: int) -> Any:
    return write_placeholder(DOMAIN, name, inputs, outputs)


def write_placeholder(domain: str, name: str, inputs: Sequence[Any], outputs: int) -> Any:
    """Write a node of any operator while ``torch.onnx`` translates; return its results."""
    formal = onnx.defs.OpSchema.FormalParameter
    schema = onnx.defs.OpSchema(
        name,
        domain,
        1,
        inputs=[formal(f"input_{index}", "T") for index in range(len(inputs))],
        outputs=[formal(f"output_{index}", "T") for index in range(outputs)],
        type_constraints=[("T", ["tensor(float)"], "")],
    )
    results = Op(Opset(domain, 1), name, schema)(*inputs)
    return [results] if outputs == 1 else results
