"""The tests' record of one operator, which each module of ``operators/`` fills."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from conformance_case import Case
from nystra.plugins.operators import OPERATORS, find_schema

Shape = tuple[int | str, ...]
"""A shape with open sizes, which have names."""


CUDA_OPERATORS = tuple(name for name in OPERATORS if find_schema(name).plugin == name)
"""The operators with a CUDA kernel and a TensorRT plugin."""


@dataclass(frozen=True)
class OpenNode:
    """A node whose sizes are open, for TensorRT.

    Attributes:
        inputs: The shape of each input.
        outputs: The shape of each output.
        sizes: Values of the open sizes, three times.
        attributes: Those that have no default, or another value; None: those of the good node.
    """

    inputs: list[Shape]
    outputs: list[Shape]
    sizes: list[dict[str, int]]
    attributes: dict[str, Any] | None = None


@dataclass(frozen=True)
class OperatorTests:
    """One operator.

    Attributes:
        cases: Its rows of the conformance table.
        base: A row that ``changes`` are made to.
        changes: Attribute -> attributes that take another value with it; every one of them changes
            the output of ``base``.
        attributes: A good node: attributes that have no default, or another value.
        shapes: The shapes of its inputs.
        open_node: A node for TensorRT.
        fills_workspace: Whether the CUDA kernel takes a workspace for a row and fills all of it;
            None: there is no CUDA kernel.
    """

    cases: list[Case]
    base: Case
    changes: dict[str, dict[str, int | float]]
    attributes: dict[str, Any]
    shapes: list[tuple[int, ...]]
    open_node: OpenNode
    fills_workspace: Callable[[Case], bool] | None = None


def find_reference(operator: str) -> Callable[..., Any]:
    """Return the reference of an operator: inputs and attributes -> outputs, in float64 numpy."""
    reference: Callable[..., Any] = importlib.import_module(
        f"reference.{OPERATORS[operator]}"
    ).reference
    return reference


def find_tests(operator: str) -> OperatorTests:
    """Return the record of an operator, by its node type."""
    module = importlib.import_module(f"operators.{OPERATORS[operator]}")
    tests: OperatorTests = module.TESTS
    return tests
