"""An ONNX file of another program is exported with nystra's nodes and gives the same output."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from nystra.cli.main import export_main, main
from nystra.core.errors import NystraError
from nystra.export import ExportOptions, Plan, export_model, mechanism, replacement_timing
from nystra.export.attention.site import find_sites
from nystra.export.load.onnx_file import load_onnx
from nystra.export.rewrite import attention_search, graph_writing
from nystra.export.rewrite.comparison import find_mismatch
from nystra.export.rewrite.mechanisms import write_mechanism
from nystra.models.sites import exact_windows
from nystra.plugins.domain import DOMAIN
from onnx_files import WINDOW, window_attention
from plain_onnxruntime import in_onnxruntime

FULL = ExportOptions(plan=Plan(mechanism("full")), speed=False)


def with_wrong_table(factor: float) -> Any:
    """Return what writes a mechanism, for a site whose table is multiplied by a factor."""

    def wrong(node: Any, site: Any, *more: Any) -> Any:
        changed = copy.deepcopy(site)
        changed.relative_position_bias_table.mul_(factor)
        return write_mechanism(node, changed, *more)

    return wrong


def make_image(*size: int) -> np.ndarray:
    return np.random.default_rng(0).random((1, 3, *size)).astype(np.float32)


def difference(first: Path, second: Path, *size: int) -> float:
    """The largest difference of two files, relative to the largest value."""
    one, other = (in_onnxruntime(path, make_image(*size)) for path in (first, second))
    return float(np.abs(one - other).max() / np.abs(other).max())


@pytest.fixture
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every replacement be measured as fast."""
    monkeypatch.setattr(replacement_timing, "_time_in_turns", lambda *_: [[2.0], [1.0]])


def test_attention_of_a_file_is_found(tmp_path: Path) -> None:
    path = window_attention(tmp_path / "theirs.onnx")
    loaded = load_onnx(path, {})
    (site,) = find_sites(loaded.network)
    assert site.path == "body.attn"
    assert site.module.geometry.window == (WINDOW, WINDOW)  # type: ignore[union-attr]
    assert loaded.facts.window == (WINDOW, WINDOW)
    assert loaded.facts.size_multiple == WINDOW
    assert not loaded.facts.pads
    assert not loaded.warnings
    image = make_image(16, 20)
    with torch.no_grad():
        got = loaded.network(torch.from_numpy(image)).numpy()
        np.testing.assert_allclose(got, in_onnxruntime(path, image), atol=1e-5)
        site.module.implementation = lambda qkv, table, geometry: exact_windows(
            qkv, table + torch.arange(len(table))[:, None], geometry
        )
        other = loaded.network(torch.from_numpy(image)).numpy()
    assert np.abs(other - got).max() > 1e-3  # the site is what is computed


@pytest.mark.full
def test_equal_layers_are_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of four layers has another scale; of the others only the weights differ."""

    def change(model: onnx.ModelProto) -> None:
        scales = [t for t in model.graph.initializer if numpy_helper.to_array(t).size == 1]
        halves = [t for t in scales if numpy_helper.to_array(t) == np.float32(0.5)]
        halves[1].CopyFrom(numpy_helper.from_array(np.float32(0.4), halves[1].name))

    checked: list[str] = []

    def counted(item: Any, *more: Any, **named: Any) -> str:
        checked.extend(item.sites)
        return find_mismatch(item, *more, **named)

    monkeypatch.setattr(attention_search, "find_mismatch", counted)
    path = window_attention(tmp_path / "theirs.onnx", layers=4, change=change)
    network = load_onnx(path, {}).network
    assert checked == ["body.attn.attention_0", "body.attn.attention_1"]
    assert len(find_sites(network)) == 4
    assert all(len(item.site_shapes) == 1 for item in network.replacements)
    monkeypatch.setattr(attention_search, "find_mismatch", lambda *_, **__: "it differs")
    assert not find_sites(load_onnx(path, {}).network)


def test_hyper_parameters_cannot_be_given(tmp_path: Path) -> None:
    path = window_attention(tmp_path / "theirs.onnx")
    with pytest.raises(NystraError, match="does not apply to an ONNX file"):
        export_model(path, tmp_path / "ours.onnx", ExportOptions(hyper={"a": 1}))


@pytest.mark.full
@pytest.mark.usefixtures("faster")
@pytest.mark.parametrize(
    ("opset", "shape"),
    [(13, (1, 3, "h", "w")), (17, (1, 3, 16, 20)), (20, ("b", 3, "h", "w"))],
)
def test_exact_attention_of_a_file_is_replaced(
    opset: int, shape: tuple[Any, ...], tmp_path: Path
) -> None:
    path = window_attention(tmp_path / "theirs.onnx", opset, shape=shape)
    result = export_model(path, tmp_path / "ours.onnx", FULL)
    sizes = [(16, 20)] if 16 in shape else [(8, 8), (16, 20), (28, 12)]
    assert all(difference(result.model, path, *size) < 1e-5 for size in sizes)
    model, before = onnx.load(result.model), onnx.load(path)
    (node,) = (node for node in model.graph.node if node.domain == DOMAIN)
    assert (node.op_type, node.name) == ("NystraWindowSoftmax", "body.attn")
    assert not {"Softmax"} & {node.op_type for node in model.graph.node}
    raised = [text for text in result.warnings if "opset was raised" in text]
    kept = next(entry.version for entry in model.opset_import if entry.domain == "")
    assert kept == max(opset, 17 if opset == 17 else 18)
    assert bool(raised) == (opset == 13)
    assert model.graph.input == before.graph.input
    assert model.graph.output == before.graph.output
    convolutions = [node for node in before.graph.node if node.op_type == "Conv"]
    assert [node for node in model.graph.node if node.op_type == "Conv"] == convolutions


@pytest.mark.usefixtures("faster")
@pytest.mark.parametrize("target", [None, pytest.param("portable", marks=pytest.mark.full)])
def test_a_file_of_one_size_is_made_of_one_of_any(target: str | None, tmp_path: Path) -> None:
    path = window_attention(tmp_path / "theirs.onnx", shape=("b", 3, "h", "w"))
    options = dataclasses.replace(FULL, static=(2, 3, 16, 20), target=target)
    result = export_model(path, tmp_path / "ours.onnx", options)
    graph = onnx.load(result.model).graph
    for value in (*graph.input, *graph.output):
        assert [side.dim_value for side in value.type.tensor_type.shape.dim] == [2, 3, 16, 20]
    assert {node.domain for node in graph.node} == ({"", DOMAIN} if target is None else {""})
    image = np.random.default_rng(0).random((2, 3, 16, 20)).astype(np.float32)
    ours, theirs = (in_onnxruntime(file, image) for file in (result.model, path))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    with pytest.raises(NystraError, match="has 4 channels, the network 3"):
        export_model(path, tmp_path / "n.onnx", dataclasses.replace(options, static=(1, 4, 8, 8)))


@pytest.mark.full
@pytest.mark.parametrize(("attention", "opset"), [("as_trained", 20), ("full", 19), ("full", 25)])
@pytest.mark.usefixtures("faster")
def test_the_opset_that_is_asked_for_is_written(attention: str, opset: int, tmp_path: Path) -> None:
    path = window_attention(tmp_path / "theirs.onnx", 17)
    options = dataclasses.replace(FULL, plan=Plan(mechanism(attention)), opset=opset)
    result = export_model(path, tmp_path / "ours.onnx", options)
    (version,) = (e.version for e in onnx.load(result.model).opset_import if e.domain == "")
    assert version == opset
    assert difference(result.model, path, 16, 20) < 1e-5


@pytest.mark.full
@pytest.mark.usefixtures("faster")
def test_a_wrong_piece_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: position biases are changed after the check of the piece."""
    from nystra.core.errors import ValidationError

    monkeypatch.setattr(graph_writing, "write_mechanism", with_wrong_table(1.01))
    path = window_attention(tmp_path / "theirs.onnx")
    with pytest.raises(ValidationError):
        export_model(path, tmp_path / "ours.onnx", FULL)


@pytest.mark.full
def test_what_does_not_pay_is_left_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replacement_timing, "_time_in_turns", lambda *_: [[1.0], [1.5]])
    path = window_attention(tmp_path / "theirs.onnx")
    result = export_model(path, tmp_path / "ours.onnx", FULL)
    ours, theirs = onnx.load(result.model), onnx.load(path)
    assert ours.graph == theirs.graph
    (reason,) = {site.reason for site in result.source.resolved.values()}
    assert "took 1.50 times as long" in reason
    assert any(reason in text for text in result.warnings)


@pytest.mark.full
def test_pieces_that_pay_are_left_where_the_file_does_not_gain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = iter([[[1.0], [0.5]], [[1.0], [1.2]]])  # a piece, and the file
    monkeypatch.setattr(replacement_timing, "_time_in_turns", lambda *_: next(timed))
    path = window_attention(tmp_path / "theirs.onnx")
    result = export_model(path, tmp_path / "ours.onnx", FULL)
    assert onnx.load(result.model).graph == onnx.load(path).graph
    assert any("the whole file took 1.20 times" in text for text in result.warnings)


@pytest.mark.full
def test_the_commands_take_what_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = window_attention(tmp_path / "theirs.onnx")
    ours = tmp_path / "ours.onnx"
    attention = ["--attn", "cluster", "--clusters", "2x2", "--block", "2"]
    assert export_main([str(path), *attention, "-o", str(ours), "--no-speed", "-q"]) == 0
    manifest = json.loads(ours.with_suffix(".json").read_text())
    assert manifest["source"]["name"] == "theirs.onnx"
    assert main(["validate", str(ours), "-q"]) == 0
    assert main(["validate", str(ours), "--checkpoint", str(path), "-q"]) == 0
    capsys.readouterr()
    assert main(["inspect", str(path)]) == 0
    assert "body.attn" in capsys.readouterr().out
    assert main(["inspect", str(ours)]) == 0
    assert "NystraWindowCluster" in capsys.readouterr().out


def test_a_file_is_never_replaced_by_what_is_made_of_it(tmp_path: Path) -> None:
    path = window_attention(tmp_path / "theirs.onnx")
    before = path.read_bytes()
    options = ExportOptions(plan=Plan(mechanism("full")), speed=False, overwrite=True)
    with pytest.raises(NystraError, match="is an input of the export"):
        export_model(path, path, options)
    assert path.read_bytes() == before
