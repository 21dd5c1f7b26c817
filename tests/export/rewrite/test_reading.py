"""Hostile and unreadable ONNX files end with one sentence and exit code 2."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from nystra.cli.main import export_main
from nystra.export.load.onnx_file import read_file
from onnx_files import window_attention

Change = Callable[[onnx.ModelProto], None]


def _external(location: str, length: int | None = None) -> Change:
    def change(model: onnx.ModelProto) -> None:
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
        if length is not None:
            tensor.external_data.add(key="length", value=str(length))

    return change


def _cycle(model: onnx.ModelProto) -> None:
    first, second = model.graph.node[0], model.graph.node[1]
    first.input[0] = second.output[0]


def _twice(model: onnx.ModelProto) -> None:
    model.graph.node[1].output[0] = model.graph.node[0].output[0]


def _huge_tensor(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[0] = 1 << 40


def _short_tensor(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[0] += 1


def _negative_tensor(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[0] = -8


def _huge_input(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 1 << 40


def _old(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 6


def _strings(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING


def _nystra(model: onnx.ModelProto) -> None:
    model.opset_import.add(domain="nystra", version=1)


def _second_input(model: onnx.ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1] * 5))


def _second_output(model: onnx.ModelProto) -> None:
    name = model.graph.node[0].output[0]
    model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))


def _no_input(model: onnx.ModelProto) -> None:
    held = helper.make_tensor("x", TensorProto.FLOAT, [1, 3, 8, 8], [0.0] * 192)
    model.graph.initializer.append(held)
    del model.graph.input[:]


def _noise(model: onnx.ModelProto) -> None:
    """A branch that no image of a comparison takes adds noise."""
    graph = model.graph
    name = graph.output[0].name
    graph.node[-1].output[0] = "before"
    noise, same = (
        helper.make_graph([helper.make_node(kind, ["before"], [kind])], kind, [], [value])
        for kind in ("RandomNormalLike", "Identity")
        for value in [helper.make_tensor_value_info(kind, TensorProto.FLOAT, None)]
    )
    graph.node.append(helper.make_node("IsNaN", ["before"], ["nan"]))
    graph.node.append(helper.make_node("Cast", ["nan"], ["count"], to=TensorProto.FLOAT))
    graph.node.append(helper.make_node("ReduceMax", ["count"], ["any"], keepdims=0))
    graph.node.append(helper.make_node("Cast", ["any"], ["is"], to=TensorProto.BOOL))
    branches = {"then_branch": noise, "else_branch": same}
    graph.node.append(helper.make_node("If", ["is"], [name], **branches))


def _dropout(model: onnx.ModelProto) -> None:
    name = model.graph.output[0].name
    model.graph.node[-1].output[0] = "before"
    model.graph.initializer.append(helper.make_tensor("trains", TensorProto.BOOL, [], [True]))
    model.graph.node.append(helper.make_node("Dropout", ["before", "", "trains"], [name]))


HOSTILE: dict[str, tuple[Change, str]] = {
    "data outside": (_external("../secret.bin"), "not in its folder"),
    "data at the root": (_external("/etc/passwd"), "not in its folder"),
    "data that is not there": (_external("absent.bin"), "absent.bin"),
    "a cycle": (_cycle, "the graph has a cycle"),
    "a value given twice": (_twice, "a second time"),
    "a tensor of 2^40": (_huge_tensor, "is declared as 1099511627776x3x3x3"),
    "a tensor without its data": (_short_tensor, "its shape needs"),
    "a negative side": (_negative_tensor, "is declared as -8"),
    "an input of 2^40": (_huge_input, "is declared as"),
    "a second input": (_second_input, "beside its image: expected another image"),
    "a second output": (
        _second_output,
        "has 1 inputs and 2 outputs: expected an image as an input and one",
    ),
    "no input": (_no_input, "has 0 inputs and 1 outputs"),
    "an old opset": (_old, "has opset 6, expected 7 to 25"),
    "noise": (_noise, "RandomNormalLike draws random numbers"),
    "dropout": (_dropout, "Dropout draws random numbers"),
    "an input of strings": (_strings, "not a tensor of numbers"),
    "a file of nystra": (_nystra, "already has operators of nystra"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_ends_in_one_sentence(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, message = HOSTILE[name]
    (tmp_path / "secret.bin").write_bytes(bytes(4096))
    folder = tmp_path / "folder"
    folder.mkdir()
    path = window_attention(folder / "theirs.onnx", change=change)
    before = sorted(os.listdir(folder))
    assert export_main([str(path), "-o", str(folder / "ours.onnx"), "-q"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert sorted(os.listdir(folder)) == before


@pytest.mark.parametrize("content", [b"", b"\x08\x08garbage", os.urandom(512)])
def test_what_is_no_onnx_ends_in_one_sentence(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "theirs.onnx"
    path.write_bytes(content)
    assert export_main([str(path), "-o", str(tmp_path / "ours.onnx"), "-q"]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_external_data_beside_the_file_are_read(tmp_path: Path) -> None:
    plain = read_file(window_attention(tmp_path / "plain.onnx"))
    kept: list[bytes] = []

    def change(model: onnx.ModelProto) -> None:
        kept.append(model.graph.initializer[0].raw_data)
        _external("data.bin", len(kept[0]))(model)

    path = window_attention(tmp_path / "external.onnx", change=change)
    (tmp_path / "data.bin").write_bytes(kept[0])
    model = read_file(path).model
    assert model.graph.initializer[0].raw_data == plain.model.graph.initializer[0].raw_data


SIDE = 1 << 20
HUGE: dict[str, list[np.ndarray]] = {
    "ConstantOfShape": [np.array([1 << 40])],
    "Expand": [np.zeros(1, np.float32), np.array([1 << 40])],
    "Range": [np.array(0), np.array(1 << 40), np.array(1)],
    "Tile": [np.zeros(2, np.float32), np.array([1 << 39])],
    "Add": [np.zeros((SIDE, 1), np.float32), np.zeros(SIDE, np.float32)],
    "MatMul": [np.zeros((SIDE, 1), np.float32), np.zeros((1, SIDE), np.float32)],
}


@pytest.mark.parametrize("operator", HUGE)
def test_results_of_two_to_the_forty_are_refused_before_they_are_computed(
    operator: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = HUGE[operator]

    def change(model: onnx.ModelProto) -> None:
        for place, array in enumerate(given):
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, f"big_{place}"))
        inputs = [f"big_{place}" for place in range(len(given))]
        model.graph.node.append(helper.make_node(operator, inputs, ["z"]))
        model.graph.output[0].name = "z"

    path = window_attention(tmp_path / "theirs.onnx", change=change)
    assert export_main([str(path), "-o", str(tmp_path / "ours.onnx"), "-q"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert operator in line
    assert "at most 2147483648 elements" in line
