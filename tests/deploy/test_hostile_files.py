"""What a model file says and names never becomes code or the name of a file."""

from __future__ import annotations

import ast
import base64
import hashlib
import re
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from classifier_models import save_classifier
from later import full, one_in
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.core.metadata import ModelMetadata, key_of
from nystra.core.ports.preprocessing import Preprocessing
from nystra.deploy.model_name import is_model_name
from nystra.deploy.web import runtime_files
from nystra.runtime import Session
from nystra.runtime.model.external_data import external_files
from nystra.runtime.model.model_copy import ModelCopy
from runtime_models import nystra_metadata, save_upscaler

TARGETS = {
    "python": ("triton",),
    "onnxruntime": ("triton", "--backend", "onnxruntime"),
    "comfyui": ("comfyui",),
    "vapoursynth": ("vapoursynth",),
    "web": ("web",),
}
CODE, PATH = 'SwinIR"""; open("EXECUTED", "a"); """', "../../1/model.py"
HOSTILE = (
    CODE,
    PATH,
    "a'\\\n{name}{0!r}\x1b[2J```",
    "</script><script>alert(1)</script>",
    "$(touch EXECUTED)`touch EXECUTED`",
    "/tmp/EXECUTED",
    "::set-output name=a::b",
    "\u202egpj.exe\u2028",
)
ENTRIES = [each.name for each in fields(ModelMetadata)]
Change = Callable[[onnx.ModelProto], None]


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, with small files that are accepted as onnxruntime-web."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ort" / "dist").mkdir(parents=True)
    for name in runtime_files.FILES:
        (tmp_path / "ort" / "dist" / name).write_bytes(b"")
        digest = base64.b64encode(hashlib.sha256(b"").digest()).decode()
        monkeypatch.setitem(runtime_files.FILES, name, digest)


def model_with(change: Change, name: str = "m") -> Path:
    """Write a model of one size that every target takes, changed."""
    path = save_upscaler(Path(f"{name}.onnx"), size=(8, 12), batch=1, metadata=nystra_metadata())
    model = onnx.load(path)
    change(model)
    onnx.save(model, path)
    return path


def named(place: str, text: str) -> Change:
    """Return the change that puts a text into an entry of the metadata, or names a tensor so."""

    def change(model: onnx.ModelProto) -> None:
        if place in ENTRIES:
            entries = {entry.key: entry.value for entry in model.metadata_props}
            helper.set_model_props(model, entries | {key_of(place): text})
            return
        for node in model.graph.node:
            for names in (node.input, node.output):
                names[:] = [text if name == place else name for name in names]
        for value in (*model.graph.input, *model.graph.output):
            value.name = text if value.name == place else value.name
        for entry in model.metadata_props:
            if entry.key == key_of("io"):
                entry.value = "[]"

    return change


def deployed(target: str, model: Path) -> tuple[set[str], list[str]] | None:
    """Return names of files, and shapes of the programs, that are written; None: refused."""
    out = Path("out")
    more = ["--onnxruntime-web", "ort"] if target == "web" else []
    command = ["deploy", *TARGETS[target], str(model), "-o", str(out), "-q", *more]
    code = main(command)
    assert code in (0, 2)
    if code == 2:
        assert not out.exists()
        return None
    files = sorted(path for path in out.rglob("*") if path.is_file())
    names = {str(path.relative_to(out)) for path in files}
    programs = [path.read_text() for path in files if path.suffix in (".py", ".vpy")]
    for path in files:
        if path.name == "README.md":
            programs += re.findall(r"```python\n(.*?)```", path.read_text(), re.S)
    shutil.rmtree(out)
    return names, [shape(program) for program in programs]


def shape(program: str) -> str:
    """Return the syntax tree of a program without the values of its texts."""
    tree = ast.parse(program)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
    return ast.dump(tree)


@pytest.mark.parametrize(
    "every", [pytest.param(True, marks=pytest.mark.full, id="every"), pytest.param(False, id="one")]
)
@pytest.mark.parametrize("target", TARGETS)
def test_no_text_of_a_file_is_code_or_a_name(target: str, every: bool, tmp_path: Path) -> None:
    """A folder equals that of a harmless file, or nothing is written."""
    harmless = deployed(target, model_with(lambda _: None))
    assert harmless is not None
    before = set(tmp_path.iterdir())
    for place in (*ENTRIES, "input", "output"):
        for text in HOSTILE if every else [PATH if place in ("input", "output") else CODE]:
            made = deployed(target, model_with(named(place, text)))
            assert made is None or made == harmless, (place, text)
    assert set(tmp_path.iterdir()) == before
    assert not Path("/tmp/EXECUTED").exists()


@pytest.mark.parametrize("target", ["python", *full("onnxruntime", "comfyui", "vapoursynth")])
def test_odd_names_of_honest_files_are_served(target: str) -> None:
    for name in ("input.1", "onnx::Conv_12", "/model/in:0", "my input", "入力", "a/b;c/d", "class"):
        made = deployed(target, model_with(named("input", name)))
        assert made == deployed(target, model_with(lambda _: None)), name


def with_data(*locations: str) -> Change:
    """Return the change that adds unused tensors with their data in files: programs."""

    def change(model: onnx.ModelProto) -> None:
        for place, location in enumerate(locations):
            code = b'open("EXECUTED", "w")\n'
            tensor = model.graph.initializer.add(name=f"pad{place}", data_type=TensorProto.UINT8)
            tensor.dims.append(len(code))
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", location), ("length", str(len(code)))):
                entry = tensor.external_data.add()
                entry.key, entry.value = key, value
            Path(location).parent.mkdir(parents=True, exist_ok=True)
            Path(location).write_bytes(code)

    return change


@pytest.mark.parametrize("target", ["comfyui", *full("python", "onnxruntime")])
@pytest.mark.parametrize(
    "location",
    [
        "prestartup_script.py",
        "__init__.py",
        "libtriton_onnxruntime.so",
        "tensorrt/__init__.py",
        "model.py",
        "model.onnx",
        "web/x.js",
        "a\nb 'c'.data",
        "config.pbtxt",
    ],
)
def test_data_is_copied_under_names_of_our_own(target: str, location: str) -> None:
    harmless = deployed(target, model_with(with_data("weights.bin")))
    assert harmless is not None
    assert "model.onnx.data" in {Path(name).name for name in harmless[0]}
    assert deployed(target, model_with(with_data(location))) == harmless


def test_a_location_outside_of_the_folder_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    model = model_with(with_data("secret.bin")).rename(tmp_path / "inner" / "m.onnx")
    model.write_bytes(model.read_bytes().replace(b"secret.bin", b"../secret1"))
    (tmp_path / "secret1").write_bytes(b"x" * 100)
    assert deployed("comfyui", model) is None


def external(array: np.ndarray, location: str, offset: int = 0) -> TensorProto:
    """Return a tensor whose bytes are written to a file at an offset."""
    tensor = numpy_helper.from_array(array, "weight")
    file = Path(location)
    file.parent.mkdir(exist_ok=True)
    held = file.read_bytes() if file.exists() else b""
    file.write_bytes(held[:offset].ljust(offset, b"\0") + tensor.raw_data)
    length = len(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)
    return tensor


def test_a_copy_refers_to_its_own_data(tmp_path: Path) -> None:
    """Tensors of the graph, of attributes, branches and functions; one file by two names."""
    first, second = np.arange(40, dtype=np.float32), np.arange(7, dtype=np.int64)

    def change(model: onnx.ModelProto) -> None:
        model.graph.initializer.append(external(first, "data/all.bin"))
        constant = helper.make_node("Constant", [], ["c"], value=external(second, "second", 64))
        branch = helper.make_graph([constant], "branch", [], [])
        model.graph.node.insert(
            0, helper.make_node("If", ["flag"], ["d"], then_branch=branch, else_branch=branch)
        )
        model.graph.node.append(
            helper.make_node("Constant", [], ["e"], value=external(first, "./data/all.bin"))
        )
        function = helper.make_function("own", "F", [], ["c"], [constant], [])
        model.functions.append(function)

    model = model_with(change)
    (tmp_path / "copy").mkdir()
    made = ModelCopy.of(model).write(tmp_path / "copy")
    assert {path.name for path in made.parent.iterdir()} == {
        "model.onnx",
        "model.onnx.data",
        "model.onnx.data.1",
    }
    assert set(external_files(made)) == {"model.onnx.data", "model.onnx.data.1"}
    original, copy = (onnx.load(path, load_external_data=False) for path in (model, made))
    assert copy.ByteSize() > 0
    for each in (original, copy):
        folder = model.parent if each is original else made.parent
        for tensor in (
            each.graph.initializer[-1],
            each.graph.node[-1].attribute[0].t,
            each.graph.node[0].attribute[0].g.node[0].attribute[0].t,
            each.functions[0].node[0].attribute[0].t,
        ):
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
            del tensor.external_data[:]
            tensor.data_location = TensorProto.DEFAULT
        other = each.graph.node[0].attribute[1].g.node[0].attribute[0].t
        other.CopyFrom(each.graph.node[0].attribute[0].g.node[0].attribute[0].t)
    assert copy == original


def test_a_copied_model_computes_the_same(tmp_path: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        gain = next(each for each in model.graph.initializer if each.name == "gain")
        weight = external(np.array(3.0, np.float32), "__init__.py", 4096)
        weight.name = "gain"
        gain.CopyFrom(weight)

    model = model_with(change)
    assert main(["deploy", "comfyui", str(model), "-o", "nodes", "-q"]) == 0
    copied = Session(tmp_path / "nodes" / "nystra-m" / "model.onnx", threads=1)
    image = np.random.default_rng(0).random((1, 3, 8, 12)).astype(np.float32)
    np.testing.assert_array_equal(copied(image), 3 * image.repeat(2, 2).repeat(2, 3))


def test_each_label_stays_one_line(tmp_path: Path) -> None:
    labels = ("a\nb", "\x1b[2J", 'c"""')
    save_classifier(tmp_path / "m.onnx", Preprocessing(labels=labels))
    assert main(["deploy", "triton", "m.onnx", "-o", "r", "-q"]) == 0
    assert Path("r/m/labels.txt").read_text() == 'a\\nb\n\\x1b[2J\nc"""\n'


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("name", ["architecture", "license"])
def test_what_other_programs_say_is_left_out(name: str, text: str) -> None:
    entries = {key_of(name): text}
    stated = ModelMetadata.read(entries)
    assert getattr(stated, name) in (None, text)
    if getattr(stated, name) is None:
        with pytest.raises(NystraError, match=rf"the metadata entry {key_of(name)} is "):
            ModelMetadata.read(entries | {key_of("version"): "0.2.0"})


@pytest.mark.parametrize("name", one_in(3, ['a"b', "a\nb", "-x", "__init__", "CON", "x.", "a b"]))
def test_an_odd_name_of_a_file_is_refused_or_replaced(name: str) -> None:
    model_with(lambda _: None, "m").rename(f"{name}.onnx")
    for target in TARGETS:
        made = deployed(target, Path.cwd() / f"{name}.onnx")
        assert made is None if target != "web" else made and "model.onnx" in made[0]


def test_names_of_models() -> None:
    for name in ("m", "swinir_x2_w16", "a-b", "1", "_a", "console", "com"):
        assert is_model_name(name), name
    for name in (
        *("", "-m", ".m", "m.", "a/b", "a b", 'a"b', "a\n", "__init__", "CON", "nul.x", "Com1"),
        *("..", "m\x1b", "é", "m" * 129),
    ):
        assert not is_model_name(name), name
    assert is_model_name("a.b")
    assert not is_model_name("a.b", dots=False)
