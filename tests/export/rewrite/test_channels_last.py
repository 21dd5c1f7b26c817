"""Files whose images have their channels last, as programs of TensorFlow and Keras write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import nystra.export
from later import full
from nystra.cli.main import main
from nystra.core.errors import UnsupportedModelError
from nystra.export import ExportOptions, ExportResult, Plan, export_model, mechanism
from nystra.export.execute.editing import rename_values
from nystra.export.load.channels_first import put_channels_first
from nystra.runtime.images.images import read_image
from onnx_files import as_half, window_attention

LAST = ("n", "h", "w", 3)


def channels_last(
    shape: Sequence[int | str] = LAST, out: Sequence[int | str] = ("n", "h_", "w_", 3)
) -> Callable[[onnx.ModelProto], None]:
    """Return a change: the file takes and returns (B, H, W, C), turns both, and adds the image."""

    def change(model: onnx.ModelProto) -> None:
        graph = model.graph
        rename_values(graph, {"x": "x_first", "y": "detail"})
        graph.initializer.append(numpy_helper.from_array(np.float32(0.05), "strength"))
        graph.node.insert(0, helper.make_node("Transpose", ["x"], ["x_first"], perm=[0, 3, 1, 2]))
        graph.node.append(helper.make_node("Mul", ["detail", "strength"], ["faint"]))
        graph.node.append(helper.make_node("Add", ["x_first", "faint"], ["y_first"]))
        graph.node.append(helper.make_node("Transpose", ["y_first"], ["y"], perm=[0, 2, 3, 1]))
        for value, name, sides in (
            (graph.input[0], "x", shape),
            (graph.output[0], "y", out),
        ):
            value.CopyFrom(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(sides)))

    return change


def half(model: onnx.ModelProto) -> None:
    channels_last()(model)
    as_half(model)


def captured(model: onnx.ModelProto) -> None:
    """Channels last, and the image is used within a branch too."""
    channels_last()(model)
    branches = {}
    for name, operator in (("then_branch", "Identity"), ("else_branch", "Neg")):
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        node = helper.make_node(operator, ["x"], [name])
        branches[name] = helper.make_graph([node], name, [], [value])
    model.graph.initializer.append(numpy_helper.from_array(np.bool_(True), "go"))
    chosen = helper.make_node("If", ["go"], ["chosen"], **branches)
    rename_values(model.graph, {"y": "y_last"})
    model.graph.output[0].name = "y"
    added = helper.make_node("Add", ["y_last", "chosen"], ["y"])
    model.graph.node.extend([chosen, added])


def exported(path: Path, name: str = "full") -> ExportResult:
    options = ExportOptions(Plan(mechanism(name)), speed=False)
    return export_model(path, path.with_name("out.onnx"), options)


def ran(path: Path, image: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (output,) = session.run(None, {"x": image})
    return output


@pytest.mark.full
@pytest.mark.parametrize("name", ["full", *full("cluster")])
def test_the_written_file_takes_channels_first(tmp_path: Path, name: str) -> None:
    path = window_attention(tmp_path / "theirs.onnx", change=channels_last())
    result = exported(path, name)
    assert result.validation.passed
    (said,) = [text for text in result.warnings if "has the axes" in text]
    assert said.startswith("x, y of the written file")
    assert "not (batch, height, width, channels)" in said
    check_outputs(result.model, path, np.float32, 1e-5 if name == "full" else 0.03)


@pytest.mark.parametrize(
    ("change", "dtype", "atol"),
    [
        (channels_last((2, 32, 24, 3), (2, 32, 24, 3)), np.float32, 1e-5),
        *full((half, np.float16, 4e-3), (captured, np.float32, 1e-5)),
    ],
    ids=["fixed", "half", "captured"],
)
def test_forms_of_files(
    tmp_path: Path, change: Callable[[onnx.ModelProto], None], dtype: type, atol: float
) -> None:
    path = window_attention(tmp_path / "theirs.onnx", change=change)
    check_outputs(exported(path).model, path, dtype, atol)


def check_outputs(written: Path, original: Path, dtype: type, atol: float) -> None:
    image = np.random.default_rng(0).random((2, 32, 24, 3)).astype(dtype)
    expected = ran(original, image)
    got = ran(written, np.ascontiguousarray(image.transpose(0, 3, 1, 2)))
    np.testing.assert_allclose(got.transpose(0, 2, 3, 1), expected, atol=atol)
    assert np.abs(expected).max() > 10 * atol


@pytest.mark.full
def test_logits_of_an_image_with_channels_last(tmp_path: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        channels_last()(model)
        pool = helper.make_node("ReduceMean", ["y_first"], ["y"], axes=[2, 3], keepdims=0)
        model.graph.node[-1].CopyFrom(pool)
        logits = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])
        model.graph.output[0].CopyFrom(logits)

    path = window_attention(tmp_path / "theirs.onnx", change=change)
    result = exported(path)
    image = np.random.default_rng(0).random((1, 224, 224, 3), np.float32)
    expected, got = ran(path, image), ran(result.model, image.transpose(0, 3, 1, 2).copy())
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert result.source.loaded.facts.task == "classification"


def test_an_array_that_is_no_image_keeps_its_axes(tmp_path: Path) -> None:
    """A small last axis alone does not make an output an image."""

    def change(model: onnx.ModelProto) -> None:
        crop = helper.make_node("AveragePool", ["y_whole"], ["y"], kernel_shape=[2, 14])
        rename_values(model.graph, {"y": "y_whole"})
        model.graph.node.append(crop)
        value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 15, 3])
        model.graph.output[0].CopyFrom(value)

    shape = (1, 3, 16, 16)
    path = window_attention(tmp_path / "theirs.onnx", shape=shape, change=change)
    result = exported(path)
    image = np.random.default_rng(0).random(shape, np.float32)
    np.testing.assert_allclose(ran(result.model, image), ran(path, image), atol=1e-5)


@pytest.mark.full
def test_commands(tmp_path: Path) -> None:
    """The original and the written file restore the same image, and are timed side by side."""
    path = window_attention(tmp_path / "theirs.onnx", change=channels_last())
    written = tmp_path / "ours.onnx"
    photo = Path(nystra.export.__file__).parent / "photographs" / "coffee.png"
    assert main(["export", str(path), "--attn", "full", "-o", str(written), "--no-speed"]) == 0
    outputs = []
    for model in (path, written):
        target = tmp_path / f"{model.stem}.png"
        run = ["run", str(model), "-i", str(photo), "-o", str(target), "--tile", "160"]
        assert main(run) == 0
        outputs.append(read_image(target).pixels)
    np.testing.assert_allclose(*outputs, atol=1.01 / 255)
    assert main(["validate", str(written), "--checkpoint", str(path)]) == 0
    assert main(["bench", str(path), str(written), "--sizes", "64x64", "--seconds", "0.1"]) == 0


def test_integers_are_refused_with_the_way_out(tmp_path: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        channels_last()(model)
        model.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
        cast = helper.make_node("Cast", ["x"], ["x_float"], to=TensorProto.FLOAT)
        model.graph.node[0].input[0] = "x_float"
        model.graph.node.insert(0, cast)

    path = window_attention(tmp_path / "theirs.onnx", change=change)
    with pytest.raises(UnsupportedModelError, match=r"uint8 .*without the nodes that cast"):
        exported(path)


def test_names_that_are_taken_are_not_used_again() -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["x.channels_last"]),
        helper.make_node("Identity", ["x.channels_last"], ["y"]),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, list(LAST)) for name in ("x", "y")
    ]
    model = helper.make_model(helper.make_graph(nodes, "theirs", values[:1], values[1:]))
    put_channels_first(model, ["x", "y"])
    onnx.checker.check_model(model, full_check=True)
    sides = model.graph.output[0].type.tensor_type.shape.dim
    assert [side.dim_param or side.dim_value for side in sides] == ["n", 3, "h", "w"]
