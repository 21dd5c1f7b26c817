"""ONNX files that take something beside the image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from later import full, one_in, release
from nystra.cli.main import main
from nystra.core.errors import UnsupportedModelError
from nystra.export import ExportOptions, Plan, export_model, mechanism
from nystra.export.load.onnx_file import load_onnx
from nystra.runtime import Session
from nystra.runtime.tasks.restoration.restorer import restorer_for
from onnx_files import window_attention

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def with_input(
    shape: Sequence[int | str], kind: int = FLOAT, *, first: bool = False
) -> Callable[[onnx.ModelProto], None]:
    """Return a change: the image is moved by the mean of another input for each image."""

    def change(model: onnx.ModelProto) -> None:
        graph = model.graph
        graph.input.insert(0 if first else 1, helper.make_tensor_value_info("other", kind, shape))
        graph.initializer.append(numpy_helper.from_array(np.array([0, -1]), "rows"))
        graph.initializer.append(numpy_helper.from_array(np.array([-1, 1, 1, 1]), "as_map"))
        nodes = [
            helper.make_node("Cast", ["other"], ["number"], to=FLOAT),
            helper.make_node("Sin", ["number"], ["sine"]),
            helper.make_node("Reshape", ["sine", "rows"], ["row"]),
            helper.make_node("ReduceMean", ["row"], ["mean"], axes=[1], keepdims=1),
            helper.make_node("Reshape", ["mean", "as_map"], ["scalar"]),
            helper.make_node("Add", ["x", "scalar"], ["moved"]),
        ]
        if len(shape) < 2:
            graph.initializer.append(numpy_helper.from_array(np.array([-1, 1]), "column"))
            nodes[2].input[1] = "column"
        graph.node[0].input[0] = "moved"
        for place, node in enumerate(nodes):
            graph.node.insert(place, node)

    return change


@pytest.mark.parametrize(
    ("shape", "kind", "role", "axes"),
    one_in(
        3,
        [
            (["batch"], FLOAT, "condition", ("batch",)),
            (["batch"], INT64, "condition", ("batch",)),
            (["batch", 5], FLOAT, "condition", ("batch", "classes")),
            (["batch", "tokens"], FLOAT, "condition", ("batch", "steps")),
            (["batch", "tokens"], BOOL, "condition", ("batch", "steps")),
            (["batch", "tokens", 5], FLOAT, "condition", ("batch", "steps", "classes")),
            (["batch", 1, "h", "w"], FLOAT, "mask", ("batch", "channels", "height", "width")),
            (
                ["batch", 3, "rh", "rw"],
                FLOAT,
                "reference",
                ("batch", "channels", "height", "width"),
            ),
        ],
    ),
    ids=["step", "whole_step", "vector", "per_token", "kept_tokens", "tokens", "mask", "reference"],
)
@pytest.mark.parametrize("first", [False, *full(True)])
def test_another_input_is_read_by_its_shape(
    shape: list[int | str], kind: int, role: str, axes: tuple[str, ...], first: bool, tmp_path: Path
) -> None:
    if first and role == "reference":
        pytest.skip("the first of two images is the image")
    path = window_attention(
        tmp_path / "theirs.onnx",
        shape=("batch", 3, "h", "w"),
        change=with_input(shape, kind, first=first),
    )
    loaded = load_onnx(path, {})
    image, other = loaded.facts.inputs
    assert (image.name, image.role, other.name) == ("x", "image", "other")
    assert (other.role, other.axes) == (role, axes)
    assert other.own_size == ("rh" in shape)
    assert f"its input other is read as a {role}, by its shape" in loaded.warnings
    assert [path for path, _ in loaded.network.named_modules() if path == "body.attn"]
    sizes = {"batch": 2, "h": 12, "w": 16, "rh": 7, "rw": 9, "tokens": 4}
    random = np.random.default_rng(0)
    feeds = {"x": random.random((2, 3, 12, 16)).astype(np.float32)}
    given = 9 * random.random([sizes.get(str(side), side) for side in shape])
    feeds["other"] = given.astype({INT64: np.int64, BOOL: bool}.get(kind, np.float32))
    with torch.no_grad():
        made = loaded.network.with_sites([torch.from_numpy(array) for array in feeds.values()])
    expected = Session(path).run(feeds)["y"]
    np.testing.assert_allclose(made[0].numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("shape", [["batch", 2, 3, 4, 5], []])
def test_an_input_that_goes_with_no_image_is_refused(
    shape: list[int | str], tmp_path: Path
) -> None:
    path = window_attention(tmp_path / "theirs.onnx", change=with_input(shape))
    with pytest.raises(UnsupportedModelError, match=r"takes 'other'.* numbers for each image"):
        load_onnx(path, {})


@pytest.mark.parametrize("name", [*full("full"), *release("cluster")])
def test_an_image_and_a_step_are_exported(name: str, tmp_path: Path) -> None:
    path = window_attention(
        tmp_path / "theirs.onnx",
        shape=("batch", 3, "h", "w"),
        change=with_input(["batch"], first=True),
    )
    ours = tmp_path / "ours.onnx"
    options = {"clusters": (2, 2)} if name == "cluster" else {}
    plan = Plan(mechanism(name, **options))
    result = export_model(path, ours, ExportOptions(plan, speed=False))
    assert result.validation.passed
    assert [value.name for value in onnx.load(ours).graph.input] == ["other", "x"]
    assert main(["validate", str(ours), "--checkpoint", str(path), "-q"]) == 0
    fixed = tmp_path / "fixed.onnx"
    export_model(path, fixed, ExportOptions(plan, speed=False, static=(2, 3, 12, 16)))
    shapes = {tensor.name: tensor.shape for tensor in Session(fixed).inputs}
    assert shapes == {"other": (2,), "x": (2, 3, 12, 16)}
    pixels = np.random.default_rng(0).random((12, 16, 3)).astype(np.float32)
    for file in (ours, fixed):  # neither states its scale, which is measured
        restorer = restorer_for(Session(file, threads=1))
        one, other = (restorer(pixels, 0, 0, auxiliary={"other": np.float64(n)})[0] for n in (0, 1))
        assert one.shape == other.shape == pixels.shape
        assert np.abs(one - other).max() > 1e-4
    assert main(["validate", str(fixed), "--checkpoint", str(path), "-q"]) == 0
