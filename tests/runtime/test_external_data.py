"""The data files of a model: found for every tensor, and refused outside its folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from nystra.core.errors import NystraError
from nystra.plugins.operators.functions import operator_body
from nystra.runtime import Session
from nystra.runtime.compiled.model import EngineModel
from nystra.runtime.engines.worker import _PLUGINS
from nystra.runtime.model.external_data import external_files
from nystra.runtime.model.model_copy import copy_without_functions
from nystra.runtime.model.onnx_graph import count_nodes, domain_nodes
from runtime_models import save_upscaler


def outside(location: str) -> onnx.TensorProto:
    """Return a tensor of 16 numbers whose data are in a file."""
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [16], np.zeros(16, np.float32))
    del tensor.float_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return tensor


def constant(location: str) -> onnx.NodeProto:
    return helper.make_node("Constant", [], ["c"], value=outside(location))


def branch(location: str) -> onnx.GraphProto:
    value = helper.make_tensor_value_info("c", TensorProto.FLOAT, [16])
    return helper.make_graph([constant(location)], "branch", [], [value])


def in_initializer(model: onnx.ModelProto, location: str) -> None:
    model.graph.initializer.append(outside(location))


def in_constant(model: onnx.ModelProto, location: str) -> None:
    model.graph.node.append(constant(location))


def in_branch(model: onnx.ModelProto, location: str) -> None:
    both = {"then_branch": branch(location), "else_branch": branch(location)}
    model.graph.node.append(helper.make_node("If", ["x"], ["y"], **both))


def in_function(model: onnx.ModelProto, location: str) -> None:
    opsets = [helper.make_opsetid("", 20)]
    model.functions.append(
        helper.make_function("own", "F", [], ["c"], [constant(location)], opsets)
    )


def in_sparse(model: onnx.ModelProto, location: str) -> None:
    model.graph.sparse_initializer.add().values.CopyFrom(outside(location))


PLACES = [in_initializer, in_constant, in_branch, in_function, in_sparse]
Place = Callable[[onnx.ModelProto, str], None]


def model_with(folder: Path, location: str, place: Place = in_initializer) -> Path:
    path = save_upscaler(folder / "m.onnx")
    model = onnx.load(str(path), load_external_data=False)
    place(model, location)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("place", PLACES)
def test_data_files_count_wherever_a_tensor_stands(place: Place, tmp_path: Path) -> None:
    (tmp_path / "m.data").write_bytes(b"\0" * 64)
    path = model_with(tmp_path, "m.data", place)
    assert external_files(path) == {"m.data": tmp_path / "m.data"}
    model = EngineModel.open(path, "none")
    before = model.hashes()
    assert set(before) == {"model", "data m.data"}
    (tmp_path / "m.data").write_bytes(b"\1" * 64)
    assert model.hashes() != before


def test_files_of_one_name_and_swapped_contents_are_told_apart(tmp_path: Path) -> None:
    for folder in "ab":
        (tmp_path / folder).mkdir()
    path = model_with(tmp_path, "a/m.onnx")
    model = onnx.load(str(path), load_external_data=False)
    in_constant(model, "b/m.onnx")
    path.write_bytes(model.SerializeToString())
    seen = []
    for first, second in ((b"1", b"2"), (b"2", b"1")):
        (tmp_path / "a" / "m.onnx").write_bytes(first)
        (tmp_path / "b" / "m.onnx").write_bytes(second)
        seen.append(EngineModel.open(path, "none").hashes())
    assert set(seen[0]) == {"model", "data a/m.onnx", "data b/m.onnx"}
    assert seen[0] != seen[1]


def test_the_copy_for_plugins_has_the_data_and_the_other_bodies(tmp_path: Path) -> None:
    """Whatever the name of a data file: also one by two spellings, and in a folder."""
    (tmp_path / "model.onnx").write_bytes(b"1" * 64)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "m.onnx").write_bytes(b"2" * 64)
    path = model_with(tmp_path, "model.onnx")
    model = onnx.load(str(path), load_external_data=False)
    for location in ("./model.onnx", "a/m.onnx"):
        in_constant(model, location)
    in_function(model, "a/m.onnx")
    expected = model.SerializeToString()
    for name in ("NystraPinv", "NystraPatchMatch"):
        model.functions.append(operator_body(name, 20))
    path.write_bytes(model.SerializeToString())
    folder = tmp_path / "folder"
    folder.mkdir()
    copy = copy_without_functions(path, folder, _PLUGINS)
    assert copy.read_bytes() == expected
    contents = {location: file.read_bytes() for location, file in external_files(path).items()}
    assert sorted(contents) == ["./model.onnx", "a/m.onnx", "model.onnx"]
    for location, content in contents.items():
        assert (folder / location).read_bytes() == content


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "location", ["/dev/zero", "../m.data", "a/../../m.data", "", "link", "..\\m.data"]
)
def test_a_location_outside_the_folder_is_refused(
    location: str, place: Place, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "m.data").write_bytes(b"\0" * 64)
    (folder / "link").symlink_to(tmp_path / "m.data")
    path = model_with(folder, location, place)
    with pytest.raises(NystraError, match="which is not in its folder"):
        EngineModel.open(path, "none").hashes()
    with pytest.raises(NystraError, match="which is not in its folder"):
        Session(path, "ort-cpu")


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for location, kind in (("pipe", "a pipe"), ("folder", "a folder"), ("none", "No such file")):
        with pytest.raises(NystraError, match=f"data file .*{kind}"):
            external_files(model_with(tmp_path, location))


def test_a_damaged_graph_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = save_upscaler(tmp_path / "m.onnx")
    good = path.read_bytes()
    place = good.index(b"Resize")
    refused = 0
    for offset in range(-40, 40):
        for value in (0x00, 0x7F, 0xFF):
            path.write_bytes(good[: place + offset] + bytes([value]) + good[place + offset + 1 :])
            for read in (count_nodes, external_files, lambda p: domain_nodes(p, "nystra")):
                try:
                    read(path)
                except NystraError:
                    refused += 1
    assert refused > 50
