"""Files for engines that fuse attention: ONNX's ``Attention``, and no operator of nystra."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from conformance_models import run_poisoned, session
from exports import checkpoint, export
from nystra.core.errors import NystraError, ValidationError
from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.plugins.operators.functions import FusedBody, write_fused_body
from onnx_files import window_attention
from operators.attention import TESTS
from plain_onnxruntime import in_onnxruntime
from reference.attention import reference

STANDARD = ExportOptions(plan=Plan(mechanism("full")), target="standard", speed=False)


def kinds(path: Path, opset: int = 23) -> Counter[str]:
    """Return how often a standard file has each operator."""
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", opset)]
    assert not model.functions
    return Counter(node.op_type for node in model.graph.node)


@pytest.mark.full
def test_exact_windows_are_attention_of_onnx(tmp_path: Path) -> None:
    path = export(tmp_path, STANDARD)
    found = kinds(path)
    assert found["Attention"] == 2  # one window is shifted
    assert not {"Softmax", "Loop"} & found.keys()
    image = np.random.default_rng(0).random((1, 3, 21, 34), dtype=np.float32)
    openvino = pytest.importorskip("openvino", reason="OpenVINO is not installed")
    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    assert np.abs(compiled(image)[0] - in_onnxruntime(path, image)).max() < 1e-5


@pytest.mark.full
def test_a_file_of_others_is_raised_and_its_attention_fused(tmp_path: Path) -> None:
    source = window_attention(tmp_path / "theirs.onnx", 17, layers=2)
    path = export_model(source, tmp_path / "standard.onnx", STANDARD).model
    assert kinds(path)["Attention"] == 2
    image = np.random.default_rng(0).random((1, 3, 16, 24), dtype=np.float32)
    assert np.abs(in_onnxruntime(path, image) - in_onnxruntime(source, image)).max() < 1e-4
    newer = window_attention(tmp_path / "newer.onnx", 24)
    assert kinds(export_model(newer, tmp_path / "of24.onnx", STANDARD).model, 24)["Attention"] == 1


def test_a_wrong_mask_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = FusedBody.attend

    def unmasked(
        self: FusedBody, q: str, k: str, v: str, bias: str | None, scores: tuple[str, str]
    ) -> str:
        return right(self, q, k, v, None, scores)

    monkeypatch.setattr(FusedBody, "attend", unmasked)
    source = window_attention(tmp_path / "theirs.onnx", 17)
    with pytest.raises(ValidationError, match="largest difference"):
        export_model(source, tmp_path / "standard.onnx", STANDARD)
    assert not (tmp_path / "standard.onnx").exists()


def test_an_older_opset_is_refused(tmp_path: Path) -> None:
    options = ExportOptions(target="standard", opset=22)
    with pytest.raises(NystraError, match="`target` standard has opset 23 to 25: omit `opset`"):
        export_model(checkpoint(tmp_path), tmp_path / "m.onnx", options)


@pytest.mark.parametrize("opset", [23, 24])
def test_lists_of_tokens_with_any_mask(opset: int) -> None:
    """Cross attention, axes of the mask of 1, and queries without a key: onnxruntime's kernel."""
    for case in TESTS.cases:
        if case.values == "nan" or case.refused_by:
            continue
        arrays = case.inputs("float32")
        names = [*"qkv", "bias"]
        node = onnx.helper.make_node(
            case.operator, names, ["out"], domain="nystra", **case.node_attributes()
        )
        body = write_fused_body(node, opset)
        assert "Attention" in {inner.op_type for inner in body.node}
        values = [
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None] * 4)
            for name in [*names, "out"]
        ]
        imports = [onnx.helper.make_opsetid("", opset), onnx.helper.make_opsetid("nystra", 1)]
        graph = onnx.helper.make_graph([node], "node", values[:4], values[4:])
        model = onnx.helper.make_model(
            graph, opset_imports=imports, functions=[body], ir_version=11
        )
        (out,) = run_poisoned(session(model), arrays, case.output_shapes())
        want = reference(*(array.astype(np.float64) for array in arrays), **case.all_attributes())
        assert np.abs(out - want).max() < 1e-4 * max(1.0, np.abs(want).max()), case.id
