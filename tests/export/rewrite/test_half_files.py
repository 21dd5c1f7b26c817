"""Files in half precision throughout: searched in float32, written and validated in float16."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from later import full, release
from nystra.core.errors import ValidationError
from nystra.export import ExportOptions, Plan, export_model, mechanism, replacement_timing
from nystra.export.attention.site import find_sites
from nystra.export.load.onnx_file import load_onnx
from nystra.export.rewrite import graph_writing
from nystra.export.rewrite.mechanisms import write_mechanism
from nystra.export.rewrite.site_modules import FoundTokens
from nystra.plugins.domain import DOMAIN
from onnx_files import as_half, window_attention
from plain_onnxruntime import in_onnxruntime

FULL = ExportOptions(plan=Plan(mechanism("full")), speed=False)


@pytest.fixture(autouse=True)
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every replacement be measured as fast."""
    monkeypatch.setattr(replacement_timing, "_time_in_turns", lambda *_: [[2.0], [1.0]])


def test_attention_of_a_half_file_is_found(tmp_path: Path) -> None:
    loaded = load_onnx(window_attention(tmp_path / "theirs.onnx", change=as_half), {})
    (site,) = find_sites(loaded.network)
    assert not loaded.warnings
    table = site.module.relative_position_bias_table
    assert isinstance(table, torch.Tensor)
    assert table.dtype == torch.float16


@pytest.mark.parametrize("attention", [*full("full"), *release("cluster")])
def test_a_half_file_does_what_it_did_as_far_as_half_precision_goes(
    attention: str, tmp_path: Path
) -> None:
    half = window_attention(tmp_path / "theirs.onnx", change=as_half)
    single = window_attention(tmp_path / "single.onnx")
    options = ExportOptions(plan=Plan(mechanism(attention)), speed=False)
    result = export_model(half, tmp_path / "ours.onnx", options)
    model = onnx.load(result.model)
    assert [node.op_type for node in model.graph.node if node.domain == DOMAIN]
    assert model.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT16
    for size in ((16, 20), (28, 12)):
        image = np.random.default_rng(0).random((1, 3, *size)).astype(np.float16)
        wide = in_onnxruntime(single, image.astype(np.float32)).astype(np.float64)
        theirs = np.abs(in_onnxruntime(half, image) - wide).max()
        ours = np.abs(in_onnxruntime(result.model, image) - wide).max()
        assert ours <= 2 * theirs


@pytest.mark.full
def test_a_wrong_piece_of_a_half_file_does_not_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(node: Any, site: Any, *more: Any) -> Any:
        changed = copy.deepcopy(site)
        changed.relative_position_bias_table.mul_(1.2)
        return write_mechanism(node, changed, *more)

    monkeypatch.setattr(graph_writing, "write_mechanism", wrong)
    path = window_attention(tmp_path / "theirs.onnx", change=as_half)
    with pytest.raises(ValidationError):
        export_model(path, tmp_path / "ours.onnx", FULL)


def _single_until(model: onnx.ModelProto, operator: str) -> None:
    """Convert a model to half precision from its first node of an operator on, in place."""
    as_half(model)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT
    first = next(n for n, node in enumerate(model.graph.node) if node.op_type == operator)
    early = {name for node in model.graph.node[: first + 1] for name in node.input}
    for tensor in model.graph.initializer:
        if tensor.name in early and tensor.data_type == TensorProto.FLOAT16:
            array = onnx.numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    layers = [node for node in model.graph.node[: first + 1] if node.op_type in ("Conv", "MatMul")]
    for name in [node.output[0] for node in layers]:
        users = [
            node
            for node in model.graph.node[first + 1 :]
            if name in node.input and node.op_type != "Shape"
        ]
        if users:
            low = helper.make_node("Cast", [name], [f"{name}_low"], to=TensorProto.FLOAT16)
            for node in users:
                node.input[list(node.input).index(name)] = f"{name}_low"
            model.graph.node.insert(first + 1, low)


def test_a_map_that_is_cast_before_its_attention_is_taken_behind_the_cast(tmp_path: Path) -> None:
    path = window_attention(
        tmp_path / "theirs.onnx", change=lambda model: _single_until(model, "Conv")
    )
    network: Any = load_onnx(path, {}).network
    (item,) = network.replacements
    assert item.type == TensorProto.FLOAT16
    assert item.inputs[0].name == "conv_0_low"


def test_attention_behind_a_cast_from_the_map_is_served_as_tokens(tmp_path: Path) -> None:
    path = window_attention(
        tmp_path / "theirs.onnx", change=lambda model: _single_until(model, "MatMul")
    )
    loaded = load_onnx(path, {})
    (site,) = find_sites(loaded.network)
    assert isinstance(site.module, FoundTokens)
    (warning,) = loaded.warnings
    assert "a change of the type between the map and the tokens (body.attn)" in warning
