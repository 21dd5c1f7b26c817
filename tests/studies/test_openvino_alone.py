"""The worker of ``openvino_bars`` that has OpenVINO alone is found from the checkout."""

import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper, save

from nystra.runtime.workers.child import Child
from shared import ROOT

pytest.importorskip("openvino", reason="the extra openvino is not installed")


def test_a_file_runs_in_openvino_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from studies.performance.openvino_alone import SIDE
    from studies.performance.openvino_bars import alone_worker

    shape = [1, 3, SIDE, SIDE]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", *zip(values))
    opset = [helper.make_opsetid("", 20)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "m.onnx")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with Child(alone_worker()) as child:
        model = str(tmp_path / "m.onnx")
        child.ask("load", {"model": model, "precision": "f32", "threads": 1})
        assert child.ask("run")["seconds"] > 0
    assert not (tmp_path / "intel").exists()  # where OpenVINO's telemetry keeps an identifier
