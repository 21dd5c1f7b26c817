"""Heads padded with zeros for GPUs: the same output, recorded in the manifest, or refused."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import save_file

from nystra.cli.main import main
from nystra.core.errors import NystraError, UnsupportedModelError
from nystra.export.graph.pad_heads import pad_heads
from nystra.export.load.targeted import refuse_padding
from nystra.export.targets import TARGETS
from nystra.export.transforms import find_transform
from nystra.plugins.domain import DOMAIN
from nystra.runtime import Session
from small_swinir import state_of


def graph(
    parts: int = 1, activation: bool = False, heads: int = 2, size: int = 3
) -> onnx.ModelProto:
    """Weights, window attention and its projection; `parts` maps compute its input."""
    width = 3 * heads * size // parts
    nodes, weights, made = [], [], []
    for part in range(parts):
        rng = np.random.default_rng(part)
        weights.append((f"w{part}", rng.standard_normal((5, width))))
        weights.append((f"b{part}", rng.standard_normal(width)))
        nodes.append(helper.make_node("MatMul", ["x", f"w{part}"], [f"m{part}"]))
        nodes.append(helper.make_node("Add", [f"m{part}", f"b{part}"], [f"a{part}"]))
        made.append(f"a{part}")
    if parts > 1:
        nodes.append(helper.make_node("Concat", made, ["qkv"], axis=-1))
    source = "qkv" if parts > 1 else "a0"
    if activation:
        nodes.append(helper.make_node("Relu", [source], ["relu"]))
        source = "relu"
    sizes = {"heads": heads, "head_dim": size, "value_dim": size, "scale": 0.5}
    nodes.append(
        helper.make_node(
            "NystraWindowSoftmax", [source, "none"], ["y"], name="site", domain=DOMAIN, **sizes
        )
    )
    weights.append(("p", np.random.default_rng(9).standard_normal((heads * size, 4))))
    nodes.append(helper.make_node("MatMul", ["y", "p"], ["out"]))
    return helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 4, 5])],
            [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(a.astype(np.float32), name) for name, a in weights],
        )
    )


def stored(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def attributes(model: onnx.ModelProto) -> dict[str, float]:
    (node,) = (node for node in model.graph.node if node.domain == DOMAIN)
    return {a.name: a.f if a.name == "scale" else a.i for a in node.attribute}


@pytest.mark.parametrize("parts", [1, 3])
def test_zeros_stand_behind_every_head(parts: int) -> None:
    model = graph(parts)
    before = stored(model)
    assert pad_heads(model, 8) == ["heads of 3 channels are padded to 8 for a GPU (sites: 1)"]
    after = stored(model)
    assert attributes(model) == {"heads": 2, "head_dim": 8, "value_dim": 8, "scale": 0.5}
    for name in before:
        axis = 0 if name == "p" else before[name].ndim - 1
        old = np.moveaxis(before[name], axis, 0).reshape(
            -1, 3, before[name].size // before[name].shape[axis]
        )
        new = np.moveaxis(after[name], axis, 0).reshape(-1, 8, old.shape[-1])
        np.testing.assert_array_equal(new[:, :3], old)
        assert not new[:, 3:].any()


def test_heads_of_such_a_size_stay() -> None:
    model = graph(size=8)
    before = model.SerializeToString()
    assert pad_heads(model, 8) == []
    assert model.SerializeToString() == before


def test_what_cannot_be_padded_is_refused_and_unchanged() -> None:
    model = graph(activation=True)
    before = model.SerializeToString()
    with pytest.raises(UnsupportedModelError, match=r"site has heads of 3 .* type Relu is"):
        pad_heads(model, 8)
    assert model.SerializeToString() == before
    shared = graph()
    shared.graph.node.append(helper.make_node("MatMul", ["x", "w0"], ["other"]))
    with pytest.raises(UnsupportedModelError, match="its weights are used elsewhere too; omit it"):
        pad_heads(shared, 8)
    read_twice = graph()
    read_twice.graph.node.append(helper.make_node("Relu", ["y"], ["other"]))
    with pytest.raises(
        UnsupportedModelError, match="goes to MatMul, Relu, expected one projection"
    ):
        pad_heads(read_twice, 8)
    bare = graph()
    del bare.graph.node[-2:]
    with pytest.raises(UnsupportedModelError, match="there is none in the graph"):
        pad_heads(bare, 8)


@pytest.mark.parametrize(
    ("read", "message"),
    [("w0", "its weights are used elsewhere too"), ("y", "goes to MatMul, If, expected one")],
)
def test_what_a_branch_reads_is_used_elsewhere(read: str, message: str) -> None:
    model = graph()
    branch = helper.make_graph(
        [helper.make_node("Neg", [read], ["negative"])],
        "branch",
        [],
        [helper.make_tensor_value_info("negative", TensorProto.FLOAT, None)],
    )
    branches = {"then_branch": branch, "else_branch": branch}
    model.graph.node.append(helper.make_node("If", ["condition"], ["other"], **branches))
    with pytest.raises(UnsupportedModelError, match=message):
        pad_heads(model, 8)


def test_files_for_other_engines_are_refused() -> None:
    with pytest.raises(NystraError, match="`precision` int8 for CPUs"):
        refuse_padding(8, find_transform("int8"), None)
    with pytest.raises(NystraError, match="`target` portable for other engines"):
        refuse_padding(8, find_transform("fp16"), TARGETS["portable"])
    refuse_padding(8, find_transform("bf16", "tensorrt"), TARGETS["tensorrt"])
    refuse_padding(None, find_transform("int8"), None)


def pass_their_checks(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(file), "--backend", "ort-cpu"]) == 0
    pytest.importorskip("polygraphy", reason="polygraphy is not installed (nystra[layerwise])")
    capsys.readouterr()
    assert main(["validate", str(file), "--layerwise", "--threads", "1"]) == 0
    assert "first difference: none" in capsys.readouterr().out


@pytest.mark.full
@pytest.mark.parametrize("mechanism", ["full", "nystra", "cluster"])
def test_the_numbers_are_the_same(
    mechanism: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = tmp_path / "small.safetensors"
    save_file(state_of(window_size=8, embed_dim=12), checkpoint)
    outputs = []
    x = np.random.default_rng(0).random((1, 3, 24, 16), np.float32)
    for more in ([], ["--pad-heads", "8"]):
        file = tmp_path / f"file{len(more)}.onnx"
        words = ["export", str(checkpoint), "-o", str(file), "--attn", mechanism, "-q"]
        assert main([*words, "--no-speed", *more]) == 0
        form = json.loads(file.with_suffix(".json").read_text())["form"]
        assert form["pad_heads"] == (8 if more else None)
        outputs.append(Session(file, threads=1)(x))
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=0, atol=2e-6)
    model = onnx.load(tmp_path / "file2.onnx")
    sizes = {
        a.i
        for n in model.graph.node
        if n.domain == DOMAIN
        for a in n.attribute
        if a.name == "head_dim"
    }
    assert sizes == {8}
    if mechanism == "full":
        pass_their_checks(file, capsys)


@pytest.mark.full
def test_padded_files_of_low_precision_pass_their_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint, file = tmp_path / "small.safetensors", tmp_path / "file.onnx"
    save_file(state_of(window_size=8, embed_dim=12), checkpoint)
    words = ["export", str(checkpoint), "-o", str(file), "--attn", "full", "-q", "--no-speed"]
    assert main([*words, "--precision", "fp16", "--pad-heads", "8"]) == 0
    pass_their_checks(file, capsys)
