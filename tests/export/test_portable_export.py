"""Exports for a target: options, and the same images in engines that read only standard ONNX."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from exports import checkpoint, export
from later import full, release
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.export import ExportOptions, Plan, export_model, mechanism
from plain_onnxruntime import in_onnxruntime
from shared import ROOT

SHAPE = (1, 3, 16, 24)


def make_image(shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def in_openvino(path: Path, image: np.ndarray) -> np.ndarray:
    """The output of OpenVINO alone."""
    openvino = pytest.importorskip("openvino", reason="OpenVINO is not installed")
    hint = {"INFERENCE_PRECISION_HINT": "f32"}
    result: np.ndarray = openvino.Core().compile_model(path, "CPU", hint)(image)[0]
    return result


def check_portable(path: Path) -> onnx.ModelProto:
    """Return a model file of standard operators with at most four axes and no integers."""
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 18)]
    assert not model.functions
    assert {node.domain for node in model.graph.node} == {""}
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)
    assert all(names)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.value_info
    assert {value.type.tensor_type.elem_type for value in inferred} <= {
        onnx.TensorProto.FLOAT,
        onnx.TensorProto.BOOL,
    }
    assert max(len(value.type.tensor_type.shape.dim) for value in inferred) <= 4
    return model


@pytest.mark.parametrize(
    "name",
    [
        "full",
        *full("nystra"),
        *release("cluster", "nystromformer"),
    ],
)
def test_a_portable_file_is_the_ordinary_one_elsewhere(name: str, tmp_path: Path) -> None:
    options = {"landmarks": (2, 2)} if name.startswith("nystr") else {}
    plan = Plan(mechanism(name, **options))
    image, files = make_image(), []
    for target in (None, "portable"):
        folder = tmp_path / str(target)
        folder.mkdir()
        files.append(export(folder, ExportOptions(plan=plan, static=SHAPE, target=target)))
    want = in_onnxruntime(files[0], image)
    path = files[1]
    kinds = {node.op_type for node in check_portable(path).graph.node}
    assert not {"Identity", "Constant", "Shape", "Unsqueeze", "Squeeze", "CastLike"} & kinds
    assert np.abs(in_onnxruntime(path, image) - want).max() < 1e-5
    assert np.abs(in_openvino(path, image) - want).max() < 1e-5


@pytest.mark.full
def test_the_name_says_portable_and_the_manifest_what_follows(tmp_path: Path) -> None:
    source = checkpoint(tmp_path)
    arguments = ["export", str(source), "-o", str(tmp_path), "--static", "1x3x16x24", "-q"]
    assert main([*arguments, "--target", "portable", "--no-speed"]) == 0
    (path,) = tmp_path.glob("*.onnx")
    assert path.name == "tiny_2x_1x3x16x24_fp32_op18_full_portable.onnx"
    form = json.loads(path.with_suffix(".json").read_text())["form"]
    assert (form["target"], form["opset"], form["functions"]) == ("portable", 18, "inline")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (ExportOptions(target="portable"), "needs a fixed size: give `static`"),
        (ExportOptions(target="portable", static=SHAPE, opset=19), "has opset 18: omit `opset`"),
        (ExportOptions(target="portable", static=SHAPE, functions="none"), "omit `no_functions`"),
        (
            ExportOptions(target="portable", static=SHAPE, precision="bf16"),
            "does not apply to `precision` bf16: it is for `precision` fp32",
        ),
        (ExportOptions(target="ncnn"), "`target` 'ncnn' is unknown: expected tensorrt, portable"),
    ],
)
def test_options_that_contradict_a_target(
    options: ExportOptions, words: str, tmp_path: Path
) -> None:
    with pytest.raises(NystraError, match=words):
        export_model(checkpoint(tmp_path), tmp_path / "m.onnx", options)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.safetensors"]


@pytest.mark.parametrize(
    ("name", "size", "bytes_of_file"),
    [
        *full(("swinir_x2_w16", (1, 3, 64, 64), 1_500_000)),
        *release(
            ("hat_x2_w16", (1, 3, 64, 64), 2_000_000),
            ("uformer_denoise25_w16", (1, 3, 128, 128), 5_000_000),
        ),
    ],
)
def test_masks_and_biases_are_not_multiplied_by_windows(
    name: str, size: tuple[int, ...], bytes_of_file: int, tmp_path: Path
) -> None:
    """Folding alone wrote 28 MB of masks for 0.5 MB of weights."""
    source = ROOT / "models/pretrained" / f"{name}.safetensors"
    options = ExportOptions(Plan(mechanism("full")), static=size, target="portable", speed=False)
    path = export_model(source, tmp_path / "m.onnx", options).model
    check_portable(path)
    assert path.stat().st_size < bytes_of_file
    image = make_image(size)
    assert np.abs(in_openvino(path, image) - in_onnxruntime(path, image)).max() < 1e-5


@pytest.mark.full
def test_half_precision_is_kept(tmp_path: Path) -> None:
    path = export(tmp_path, ExportOptions(static=SHAPE, target="portable", precision="fp16"))
    model = onnx.load(path)
    weights = Counter(tensor.data_type for tensor in model.graph.initializer)
    assert weights[onnx.TensorProto.FLOAT16] > 4
    assert {node.domain for node in model.graph.node} == {""}
