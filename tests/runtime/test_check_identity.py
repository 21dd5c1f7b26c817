"""``check`` compares weights, references and the implementation of operators with the baseline."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from exported_files import swinir_files
from nystra.cli.main import main
from nystra.plugins.native import available
from nystra.runtime.model.external_data import weights_digest
from nystra.runtime.model.manifest import Manifest
from nystra.runtime.model.references import ReferenceCase, read_references, write_references
from runtime_models import nystra_metadata, save_operator, save_upscaler


def export_honestly(model: Path, gain: float, meta: dict[str, Any] | None = None) -> Path:
    """Write an upscaler with its references and its manifest, like an export."""
    metadata = nystra_metadata()
    save_upscaler(model, metadata=metadata, gain=gain)
    image = np.random.default_rng(0).random((1, 3, 12, 16), np.float32) / 2
    output = (image * np.float32(gain)).repeat(2, 2).repeat(2, 3)
    recorded = {"metadata": metadata, "tolerances": [1e-4]} | (meta or {})
    references = model.with_suffix(".npz")
    write_references(references, [ReferenceCase({"input": image}, {"output": output})], recorded)
    manifest = Manifest(model=model.name)
    for path in (model, references):
        manifest.add_file(path.name, path.read_bytes())
    manifest.write(Manifest.path_for(model))
    return model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return an upscaler whose figures were accepted."""
    path = export_honestly(tmp_path / "m.onnx", 1.0)
    assert check(path, "--update", "-q") == 0
    return path


def check(model: Path, *arguments: str) -> int:
    baseline = model.with_name("accepted.json")
    return main(["check", str(model), "--baseline", str(baseline), "--threads", "1", *arguments])


def items(model: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str]]:
    """Return state and message of each item."""
    capsys.readouterr()
    assert check(model, "--json") in (0, 1)
    verdicts = json.loads(capsys.readouterr().out)["items"]
    return {verdict["item"]: (verdict["state"], verdict["message"]) for verdict in verdicts}


def failed(model: Path, capsys: pytest.CaptureFixture[str]) -> set[str]:
    return {name for name, (state, _) in items(model, capsys).items() if state == "failed"}


def change_baseline(model: Path, **changes: Any) -> None:
    path = model.with_name("accepted.json")
    document = json.loads(path.read_text())
    document["items"] |= changes.pop("items", {})
    kept = {key: value for key, value in (document | changes).items() if value is not None}
    path.write_text(json.dumps(kept))


def test_an_honest_export_of_other_weights_is_not_what_was_accepted(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert failed(model, capsys) == set()
    export_honestly(model, 1.3)
    assert main(["validate", str(model), "--threads", "1", "-q"]) == 0, "it is right by itself"
    assert failed(model, capsys) == {"outputs", "references", "weights"}
    assert "accept them with --update" in items(model, capsys)["weights"][1]
    assert check(model, "--update", "-q") == 0
    assert failed(model, capsys) == set()


def test_a_baseline_of_a_former_version_is_read_and_says_what_it_lacks(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = model.with_name("accepted.json")
    document = json.loads(path.read_text())
    del document["digests"], document["items"]["kernels"], document["outputs"]
    path.write_text(json.dumps(document))
    export_honestly(model, 1.3)  # what the digests are for: nothing else sees it
    found = items(model, capsys)
    assert failed(model, capsys) == set()
    lacking = {name: text for name, (state, text) in found.items() if state == "skipped"}
    assert set(lacking) == {"outputs", "references", "weights", "kernels"}
    assert "--update adds them" in lacking.pop("outputs")
    for text in lacking.values():
        assert text.endswith("earlier version without this item: add it with --update")
    assert check(model, "--update", "-q") == 0
    assert {state for state, _ in items(model, capsys).values()} == {"passed"}


def test_tolerances_are_part_of_the_references(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export_honestly(model, 1.0, {"mean_tolerances": [0.5]})
    assert failed(model, capsys) == {"references"}, "which would excuse any image"
    export_honestly(model, 1.0, {"torch": "9.9"})
    assert failed(model, capsys) == set()


def test_a_digest_that_is_no_text_is_refused(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for digests, message in (
        ({"weights": 3}, "digests: weights is 3, expected a string"),
        ({"color": "ab"}, "digests: unknown keys ['color']"),
    ):
        change_baseline(model, digests=digests)
        assert check(model) == 2
        assert message in capsys.readouterr().err


def test_the_digest_of_weights_knows_values_not_their_storage(tmp_path: Path) -> None:
    path = save_upscaler(tmp_path / "m.onnx")
    proto = onnx.load(path)
    large = np.random.default_rng(0).random((64, 64)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(large, "large"))
    onnx.save(proto, path)
    digest = weights_digest(path)
    stored = tmp_path / "stored.onnx"
    onnx.save(proto, stored, save_as_external_data=True, location="s.data", size_threshold=100)
    assert (tmp_path / "s.data").is_file()
    assert weights_digest(stored) == digest
    proto = onnx.load(path)
    proto.graph.initializer.reverse()
    proto.graph.initializer[0].doc_string = "said"
    onnx.save(proto, tmp_path / "order.onnx")
    assert weights_digest(tmp_path / "order.onnx") == digest
    data = bytearray((tmp_path / "s.data").read_bytes())
    data[77] ^= 1
    (tmp_path / "s.data").write_bytes(data)
    assert weights_digest(stored) != digest, "one bit of a data file"
    proto.graph.initializer[0].name = "other"
    onnx.save(proto, tmp_path / "name.onnx")
    assert weights_digest(tmp_path / "name.onnx") != digest


def test_constants_of_the_graph_are_weights_and_those_of_bodies_are_not(tmp_path: Path) -> None:
    path = save_operator(tmp_path / "m.onnx", body=True)
    digest = weights_digest(path)
    constant = onnx.helper.make_node(
        "Constant", [], ["c"], value=numpy_helper.from_array(np.float32(3), "c")
    )
    for place in ("functions", "graph"):
        proto = onnx.load(path)
        holder = proto.functions[0] if place == "functions" else proto.graph
        holder.node.insert(0, constant)
        onnx.save(proto, tmp_path / f"{place}.onnx")
    assert weights_digest(tmp_path / "functions.onnx") == digest
    assert weights_digest(tmp_path / "graph.onnx") != digest


def test_the_file_is_what_was_exported_only_where_its_manifest_says_so(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "it equals the file in its manifest" in items(model, capsys)["file"][1]
    Manifest.path_for(model).unlink()
    state, text = items(model, capsys)["file"]
    assert state == "passed"
    assert "exported and accepted" not in text
    assert "whether it is the exported file is unknown: no manifest names it" in text


def without_library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the library by a file that no program can load."""
    (folder / "libnystra_onnxruntime.so").write_bytes(b"not a library")
    monkeypatch.setenv("NYSTRA_LIBRARY_DIR", str(folder))


@pytest.fixture
def doubling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of one operator, run by its body since the library cannot be loaded."""
    path = save_operator(tmp_path / "d.onnx", body=True)
    image = np.random.default_rng(0).random((1, 3, 8, 8), np.float32)
    write_references(
        path.with_suffix(".npz"), [ReferenceCase({"input": image}, {"output": image * 2})], {}
    )
    without_library(tmp_path, monkeypatch)
    return path


def test_bodies_where_the_library_computed_before_fail(
    doubling: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(doubling, "--update", "-q") == 0
    assert items(doubling, capsys)["kernels"][0] == "passed", "bodies were accepted"
    change_baseline(doubling, items={"kernels": {"accepted": 1.0, "tolerance": 0.0}})
    state, text = items(doubling, capsys)["kernels"]
    assert state == "failed"
    assert "0, expected at least 1" in text
    assert "does not support this model, so the operators' ONNX bodies are used" in text


def test_run_and_validate_say_that_the_library_refuses_a_file(
    doubling: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = pytest.importorskip("PIL.Image")
    source = doubling.with_name("in.png")
    image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(source)
    assert main(["validate", str(doubling), "--threads", "1"]) == 0
    assert "warning: the operator library" in capsys.readouterr().err
    output = str(source.with_name("out.png"))
    assert main(["run", str(doubling), "-i", str(source), "-o", output, "--threads", "1"]) == 0
    assert "bodies are used" in capsys.readouterr().err
    assert main(["validate", str(doubling), "--library", "none", "--threads", "1"]) == 0
    assert capsys.readouterr().err == "", "nobody refused anything"


@pytest.fixture
def accepted_swinir(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
    """A SwinIR in its own folder, with a baseline of its current figures."""
    if not available():
        pytest.skip("the operator library is not built")
    exported, model = swinir_files(tmp_path_factory), tmp_path / "model.onnx"
    for suffix in (".onnx", ".npz"):
        shutil.copy(exported / f"model{suffix}", model.with_suffix(suffix))
    assert check(model, "--update", "-q") == 0
    return model


@pytest.mark.full
def test_a_node_that_the_kernels_refuse_fails_the_gate(
    accepted_swinir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = accepted_swinir
    nodes = json.loads(model.with_name("accepted.json").read_text())["items"]["kernels"]
    assert nodes == {"accepted": 2.0, "tolerance": 0.0}
    proto = onnx.load(model)
    for node in proto.graph.node:
        for attribute in node.attribute:
            if attribute.name == "guard":
                attribute.f = -0.019
    onnx.save(proto, model)
    assert "kernels" in failed(model, capsys)


def test_a_size_that_bodies_get_wrong_is_told_from_that_of_the_kernels(
    accepted_swinir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = accepted_swinir
    proto = onnx.load(model)
    add = next(node for node in proto.functions[0].node if node.op_type == "Add")
    add.op_type = "Sub"
    onnx.save(proto, model)
    text = items(model, capsys)["max_abs"][1]
    wrong = [part for part in text.split("; ") if part.startswith("at ")]
    assert wrong
    assert all("by the operators' bodies it is" in part for part in wrong), wrong
    digests = read_references(model.with_suffix(".npz")).digest()
    assert (
        digests == json.loads(model.with_name("accepted.json").read_text())["digests"]["references"]
    )
