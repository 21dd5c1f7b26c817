"""What an export writes and times does not stand in memory that was freed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from freed_memory import FreedMemory
from nystra.export import ExportOptions, Plan, export_model, mechanism, replacement_timing
from nystra.export.attention.full.parameters import Full
from nystra.export.execute.parts import find_inputs
from nystra.export.load.onnx_file import load_onnx
from nystra.export.rewrite.constants import fix_sizes
from nystra.runtime.session import Session
from onnx_files import window_attention
from plain_onnxruntime import in_onnxruntime


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> FreedMemory:
    return FreedMemory(monkeypatch)


def reshaping() -> ir.Model:
    """Return a graph that reads a shape, a size and a constant of them beside pixels."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Size", ["x"], ["size"]),
        helper.make_node("Cast", ["size"], ["count"], to=TensorProto.FLOAT),
        helper.make_node("Relu", ["x"], ["positive"]),
        helper.make_node("Div", ["positive", "count"], ["shares"]),
        helper.make_node("Reshape", ["shares", "shape"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model: ir.Model = ir.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    )
    return model


def test_constants_of_a_fixed_size(freed: FreedMemory) -> None:
    model = reshaping()
    fix_sizes(model, {"x": (1, 3, 32, 48)})
    assert freed.filled
    written = ir.to_proto(model).graph.initializer
    arrays = {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in written}
    assert arrays == {"shape_fixed": [1, 3, 32, 48], "count_fixed": 3 * 32 * 48}


def same_shape(model: onnx.ModelProto) -> None:
    """Let a file reshape its last map to the shape that it has, as traced group norms do."""
    last = model.graph.node[-1]
    taken = last.input[0]
    del model.graph.node[-1]
    model.graph.node.extend(
        [
            helper.make_node("Shape", [taken], ["own_shape"]),
            helper.make_node("Relu", [taken], ["positive"]),
            helper.make_node("Reshape", ["positive", "own_shape"], ["again"]),
        ]
    )
    last.input[0] = "again"
    model.graph.node.append(last)


def computed(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], folder: Path) -> np.ndarray:
    path = folder / "timed.onnx"
    onnx.save(model, path)
    session = Session(path)
    output: np.ndarray
    (output,) = session.run(
        {value.name: feeds[value.name] for value in find_inputs(model)}
    ).values()
    return output


def test_what_is_timed(freed: FreedMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece on what the network computes before it, the whole file on the image."""
    path = window_attention(tmp_path / "theirs.onnx", change=same_shape)
    loaded = load_onnx(path, {})
    network: Any = loaded.network
    timed: list[replacement_timing.Timed] = []

    def noted(models: replacement_timing.Timed, _: float) -> list[list[float]]:
        timed.append(models)
        return [[0.2], [0.1]]  # less than two seconds, or the whole is not timed

    monkeypatch.setattr(replacement_timing, "_time_in_turns", noted)
    resolved = {site: Full() for site in network.paths}
    replacement_timing.drop_slower(network, loaded.facts, resolved, lambda _: None)
    piece, whole = timed
    image = replacement_timing._make_images(loaded.facts)[0].numpy()
    np.testing.assert_array_equal(whole.feeds["x"], image)
    (item,) = network.replacements
    names = [str(value.name) for value in item.inputs if str(value.name) in piece.feeds]
    session = onnxruntime.InferenceSession(_with_outputs(path, names))
    for name, expected in zip(names, session.run(None, {"x": image}), strict=True):
        np.testing.assert_allclose(piece.feeds[name], expected, atol=1e-5)
    own, ours = (computed(model, piece.feeds, tmp_path) for model in (piece.own, piece.replaced))
    np.testing.assert_allclose(ours, own, atol=1e-5 * np.abs(own).max())
    assert freed.filled
    assert freed.readers == {"runtime/ort_values.py"}


def _with_outputs(path: Path, names: Sequence[str]) -> bytes:
    model = onnx.load(path)
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return model.SerializeToString()


def test_an_export_of_one_size(
    freed: FreedMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its attention stays, as where it is not faster: then the file's own nodes are fixed."""
    monkeypatch.setattr(replacement_timing, "_time_in_turns", lambda *_: [[1.0], [2.0]])
    path = window_attention(tmp_path / "theirs.onnx", change=same_shape)
    options = ExportOptions(plan=Plan(mechanism("full")), speed=False, static=(1, 3, 16, 20))
    result = export_model(path, tmp_path / "ours.onnx", options)
    image = np.random.default_rng(0).random((1, 3, 16, 20)).astype(np.float32)
    np.testing.assert_allclose(
        in_onnxruntime(result.model, image), in_onnxruntime(path, image), atol=1e-5
    )
    assert freed.filled
    assert freed.readers == {"runtime/ort_values.py"}
