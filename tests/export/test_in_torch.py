"""The operators that a graph is computed by in PyTorch, on the cases of ONNX's own suite."""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

from nystra.export.accelerated.torch_operators import OPERATORS, TYPES, attributes_of
from nystra.export.load.onnx_reading import OLDEST_SEARCHED

NO_CASE = {"Cast", "CastLike"}
"""Operators whose cases have other types or opsets than those of graphs here."""


@functools.cache
def cases() -> dict[str, list[tuple[onnx.ModelProto, Any, Any]]]:
    """The cases of each operator, with inputs and outputs, of types and opsets of graphs.

    onnx computes them all when its module is imported, which takes seconds.
    """
    from onnx.backend.test.case.node import collect_testcases

    found: dict[str, list[tuple[onnx.ModelProto, Any, Any]]] = defaultdict(list)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the casts in some cases
        collected = collect_testcases(None)
    for case in collected:
        model, (inputs, outputs) = case.model, case.data_sets[0]
        operator = model.graph.node[0].op_type
        kinds = {v.type.tensor_type.elem_type for v in [*model.graph.input, *model.graph.output]}
        opset = next((e.version for e in model.opset_import if e.domain == ""), 0)
        if len(model.graph.node) != 1 or operator not in OPERATORS or not opset:
            continue
        if kinds <= TYPES.keys() and is_searched(operator, opset):
            found[operator].append((model, inputs, outputs))
    return found


def is_searched(operator: str, opset: int) -> bool:
    """Whether the operator of an opset is that of one which is searched."""
    if opset >= OLDEST_SEARCHED:
        return True
    own, oldest = (
        onnx.defs.get_schema(operator, opset, "").since_version
        for opset in (opset, OLDEST_SEARCHED)
    )
    return own == oldest


def results(model: onnx.ModelProto, inputs: Any) -> Any:
    """Return what PyTorch computes; of inputs that are sizes, lists are given."""
    (node,) = ir.from_proto(model).graph
    row = OPERATORS[node.op_type]
    given = dict(zip((value.name for value in model.graph.input), inputs, strict=True))
    tensors = [given.get(value.name) if value else None for value in node.inputs]
    taken = [None if array is None else torch.from_numpy(np.array(array)) for array in tensors]
    listed = [
        value.reshape(-1).tolist() if at >= row.sizes and value is not None else value
        for at, value in enumerate(taken)
    ]
    made = row.compute(attributes_of(node), *listed)
    return made if isinstance(made, tuple) else (made,)


def is_numbers(value: object) -> bool:
    known = isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf"
    return known and value.dtype.name in {"bool", "int32", "int64", "float32", "float64"}


@pytest.mark.full  # as those of test_every_operator, which reads the cases too
@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_an_operator_computes_what_the_standard_says(operator: str) -> None:
    passed = 0
    for model, inputs, outputs in cases()[operator]:
        if not all(map(is_numbers, [*inputs, *outputs])):
            continue
        try:
            made = results(model, inputs)
        except (NotImplementedError, RuntimeError, IndexError):
            continue  # said, not computed wrongly
        passed += 1
        for one, expected in zip(made, outputs, strict=False):
            assert tuple(one.shape) == np.shape(expected), model.graph.node[0]
            np.testing.assert_allclose(
                one.double().numpy(), np.asarray(expected, np.float64), rtol=1e-4, atol=1e-4
            )
    assert passed or operator in NO_CASE
