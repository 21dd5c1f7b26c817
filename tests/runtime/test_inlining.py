"""Functions inlined without onnx: the result is plain ONNX with the same output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from conformance_case import Case
from conformance_cases import CASES
from conformance_models import node_model, session
from nystra.core.errors import NystraError
from nystra.plugins.operators import OPERATORS
from nystra.runtime.model.inlining import inline_model

ONE_EACH = [
    next(case for case in CASES if case.operator == name and not case.refused_by)
    for name in OPERATORS
]


def inlined(case: Case, folder: Path) -> onnx.ModelProto:
    path = folder / "node.onnx"
    path.write_bytes(node_model(case).SerializeToString())
    return onnx.load_model_from_string(inline_model(path))


@pytest.mark.parametrize("case", ONE_EACH, ids=lambda case: case.operator)
def test_plain_onnx_is_left(case: Case, tmp_path: Path) -> None:
    model = inlined(case, tmp_path)
    onnx.checker.check_model(model)
    assert not model.functions
    assert [entry.domain for entry in model.opset_import] == [""]
    assert {node.domain for node in model.graph.node} == {""}


@pytest.mark.full
@pytest.mark.parametrize("case", ONE_EACH, ids=lambda case: case.operator)
def test_it_computes_the_same(case: Case, tmp_path: Path) -> None:
    model, called = inlined(case, tmp_path), node_model(case)
    names = [entry.name for entry in called.graph.input]
    feeds = dict(zip(names, case.inputs("float32"), strict=True))
    for got, want in zip(
        session(model).run(None, feeds), session(called).run(None, feeds), strict=True
    ):
        np.testing.assert_array_equal(got, want)


def test_weights_outside_of_the_file_are_refused(tmp_path: Path) -> None:
    model = node_model(ONE_EACH[0])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(2048, np.float32), "w"))
    path = tmp_path / "outside.onnx"
    onnx.save(model, path, save_as_external_data=True, location="outside.onnx.data")
    with pytest.raises(NystraError, match=r"has its weights in a data file.* `inline`"):
        inline_model(path)
