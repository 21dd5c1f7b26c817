"""Files of a future version: unknown parts are ignored or named in an error."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest

from native_nodes import library
from nystra import __version__
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.core.metadata import newer_writer
from nystra.export.attention.plan import read_plan
from nystra.runtime import Session
from nystra.runtime.checking.baseline import read_baseline
from nystra.runtime.model.manifest import Manifest

OLD = Path(__file__).parent / "0.1.0"
NEWER = "999.1.0"
SAYS = f"nystra {NEWER} wrote the file, this is {__version__}: update nystra"
REFUSAL = "the node has revision 2, this library of nystra"


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a changed copy of a kept file, with its references."""

    def write(change: Callable[[onnx.ModelProto], None], name: str = "full", **stated: str) -> Path:
        model = onnx.load(OLD / f"{name}.onnx")
        change(model)
        entries = {entry.key: entry.value for entry in model.metadata_props}
        new = {f"nystra.{key}": value for key, value in stated.items()}
        onnx.helper.set_model_props(model, entries | {"nystra.version": NEWER} | new)
        path = tmp_path / f"{name}.onnx"
        onnx.save(model, path)
        shutil.copy(OLD / f"{name}.npz", tmp_path)
        return path

    return write


def nothing(_: onnx.ModelProto) -> None:
    """Leave the graph as it is."""


def raise_revision(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.domain == "nystra" and attribute.name == "revision":
                attribute.i = 2


def rename_operator(model: onnx.ModelProto) -> None:
    """Rename the operator and its body to a name that no library has."""
    for node in model.graph.node:
        if node.domain == "nystra":
            node.op_type += "Newer"
    for function in model.functions:
        function.name += "Newer"


def expected(path: Path) -> tuple[np.ndarray, np.ndarray]:
    image = np.random.default_rng(0).random((1, 3, 12, 16), dtype=np.float32)
    return image, Session(OLD / path.name)(image)


@pytest.mark.parametrize("change", [raise_revision, rename_operator])
def test_a_newer_operator_runs_by_its_body(
    change: Callable[[onnx.ModelProto], None], changed: Callable[..., Path]
) -> None:
    library()
    path = changed(change)
    image, restored = expected(path)
    session = Session(path)
    np.testing.assert_allclose(session(image), restored, atol=1e-5)
    if change is raise_revision:
        assert session.library is None
        assert REFUSAL in session.library_reason


def test_a_newer_revision_is_refused_where_no_body_serves(
    changed: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(raise_revision, "no_bodies")
    assert main(["validate", str(path), "--library", str(library())]) == 2
    assert REFUSAL in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.skipif(find_spec("openvino") is None, reason="OpenVINO is not installed")
def test_a_newer_revision_is_refused_by_openvino(
    changed: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    library()
    path = changed(raise_revision)
    assert main(["validate", str(path), "--backend", "openvino"]) == 2
    assert REFUSAL in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"task": "depth"}, "a model of the task 'depth', which nystra run does not support"),
        ({"window": '{"rows": 4}'}, "the metadata entry nystra.window"),
        ({"io": json.dumps([{"name": "input", "role": "points"}])}, "does not take one image"),
    ],
)
def test_what_is_not_known_names_the_version_that_wrote_it(
    stated: dict[str, str],
    message: str,
    changed: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = changed(nothing, **stated)
    assert main(["run", str(path), "-i", str(tmp_path), "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert SAYS in error


def test_a_metadata_entry_that_is_not_known_is_passed_over(changed: Callable[..., Path]) -> None:
    path = changed(nothing, colour_space="linear")
    image, restored = expected(path)
    np.testing.assert_array_equal(Session(path)(image), restored)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("full.json", Manifest.read),
        ("full.plan.json", read_plan),
        ("full.baseline.json", read_baseline),
    ],
)
def test_a_newer_layout_of_json_is_refused_by_name(
    name: str, read: Callable[[Path], object], tmp_path: Path
) -> None:
    document = json.loads((OLD / name).read_text())
    (tmp_path / name).write_text(json.dumps(document))
    read(tmp_path / name)
    (tmp_path / name).write_text(json.dumps(document | {"schema_version": 2}))
    with pytest.raises(NystraError, match="schema_version 2, expected 1"):
        read(tmp_path / name)


@pytest.mark.parametrize("version", [None, "0.1.0", __version__, "", "devel", "0.0.99999999999"])
def test_no_other_writer_is_blamed(version: str | None) -> None:
    assert newer_writer(version) == ""


def test_a_newer_writer_is_named() -> None:
    assert newer_writer(f"{__version__}.1") != ""
    assert SAYS in newer_writer(NEWER)
