"""Files that were changed although their outputs look right: hashes, metadata, scale, bodies."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from later import one_in
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.core.metadata import without_provenance
from nystra.runtime import Session
from nystra.runtime.checking.measured import measure_file, metadata_changes
from nystra.runtime.checking.validation import validate_against_references
from nystra.runtime.model.manifest import Manifest
from nystra.runtime.model.references import (
    RECORDED_METADATA,
    ReferenceCase,
    read_references,
    write_references,
)
from runtime_models import nystra_metadata, save_operator, save_upscaler

METADATA = nystra_metadata(
    **{
        "nystra.attention": json.dumps({"source_sha256": "ab", "default": {"mechanism": "full"}}),
        "nystra.source_sha256": "ab",
        "nystra.psnr_vs_torch": "90.0",
        "nystra.quadratic_bytes": "12",
    }
)


def recorded(path: Path, metadata: dict[str, str] | None, scale: int = 2) -> Path:
    image = np.random.default_rng(0).random((1, 3, 12, 16), np.float32)
    case = ReferenceCase({"input": image}, {"output": image.repeat(scale, 2).repeat(scale, 3)})
    meta = {} if metadata is None else {RECORDED_METADATA: metadata}
    write_references(path.with_suffix(".npz"), [case], meta)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return an upscaler by 2 whose references recorded its metadata."""
    return recorded(save_upscaler(tmp_path / "m.onnx", metadata=METADATA), METADATA)


def changed_values(value: str) -> list[str]:
    """Return other values of a metadata entry, of its own kind and of others."""
    values = ["", f"{value}x", value.replace("1", "2"), value.replace("0", "3"), value.upper()]
    return [other for other in values if other != value]


def command(name: str, model: Path, *more: str) -> int:
    return main([name, str(model), "--threads", "1", "-q", *more])


@pytest.mark.parametrize("key", one_in(3, sorted(METADATA)))
def test_every_changed_metadata_value_is_caught(key: str, model: Path, tmp_path: Path) -> None:
    baseline = ["--baseline", str(tmp_path / "baseline.json")]
    assert command("validate", model) == 0
    assert command("check", model, *baseline, "--update") == 0
    for value in [*changed_values(METADATA[key]), None]:
        changed = {**METADATA, key: value}
        save_upscaler(model, metadata={k: v for k, v in changed.items() if v is not None})
        assert command("validate", model) in (1, 2), value
        assert command("check", model, *baseline) in (1, 2), value
    save_upscaler(model, metadata={**METADATA, "nystra.surplus": "1"})
    assert command("validate", model) == 1


def test_the_baseline_knows_its_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for mechanism in ("nystra", "nystromformer"):
        plan = json.dumps({"source_sha256": mechanism, "default": {"mechanism": mechanism}})
        metadata = nystra_metadata(**{"nystra.attention": plan})
        path = save_upscaler(tmp_path / f"{mechanism}.onnx", metadata=metadata)
        paths.append(recorded(path, metadata))
    baseline = ["--baseline", str(tmp_path / "baseline.json")]
    assert command("check", paths[0], *baseline, "--update") == 0
    assert main(["check", str(paths[1]), *baseline]) == 1
    out = capsys.readouterr().out
    assert "its metadata entry nystra.attention is" in out
    assert "nystromformer" in out
    document = json.loads((tmp_path / "baseline.json").read_text())
    del document["metadata"]
    (tmp_path / "baseline.json").write_text(json.dumps(document))
    assert main(["check", str(paths[0]), *baseline]) == 0
    assert "records no metadata" in capsys.readouterr().out


def test_where_a_model_comes_from_is_no_metadata_that_a_baseline_holds() -> None:
    now = without_provenance(METADATA)
    plan = json.dumps({"source_sha256": "cd", "default": {"mechanism": "full"}})
    anew = {"nystra.attention": plan, "nystra.source_sha256": "cd", "nystra.version": "9"}
    assert without_provenance({**METADATA, **anew}) == now
    assert metadata_changes(now, {**now, "scale": "3"}) == [
        "its metadata entry scale is '3', accepted was '2'"
    ]
    long = metadata_changes({"a": "x" * 99 + "1"}, {"a": "x" * 99 + "2"})
    assert "x2'" in long[0]
    assert "x1'" in long[0]
    for plan in ("[]", "{", "[" * 99):
        with pytest.raises(NystraError, match=r"nystra\.attention"):
            without_provenance({"nystra.attention": plan})


def test_scale_is_held_against_the_shapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = recorded(save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata(3)), None)
    assert main(["validate", str(model), "--threads", "1"]) == 1
    assert "scale is 3, and its images go from 12x16 to 24x32" in capsys.readouterr().err


def test_hashes_of_the_manifest(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = Manifest(model=model.name)
    for path in (model, model.with_suffix(".npz")):
        manifest.add_file(path.name, path.read_bytes())
    manifest.files["absent.plan.json"] = "0" * 64
    manifest.write(Manifest.path_for(model))
    assert command("validate", model) == 0
    content = model.read_bytes()
    model.write_bytes(content.replace(b"upscaler", b"Upscaler"))
    assert main(["validate", str(model), "--json"]) == 1
    said = capsys.readouterr()
    assert "m.onnx was changed: its SHA-256 is" in said.err
    assert json.loads(said.out)["changes"]
    baseline = ["--baseline", str(model.with_name("b.json"))]
    assert command("check", model, *baseline, "--update") == 1
    assert not model.with_name("b.json").exists()
    model.write_bytes(content)
    assert command("check", model, *baseline, "--update") == 0
    Manifest.path_for(model).write_text('{"model": "m.onnx", "files": ')
    assert command("validate", model) == 2
    Manifest.path_for(model).write_text('{"schema_version": 1, "model": "m.onnx", "items": {}}')
    assert command("validate", model) == 0, "it is another JSON file"


class Kernels:
    """A session as with the operator library: a damaged body does not show in it."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"output": feeds["input"] * 2}


def test_bodies_are_measured_beside_the_kernels(tmp_path: Path) -> None:
    path = save_operator(tmp_path / "m.onnx", body=True)
    model = onnx.load(str(path))
    damage = helper.make_node(
        "Constant", [], ["half"], value=numpy_helper.from_array(np.array(0.5, np.float32))
    )
    del model.functions[0].node[:]
    model.functions[0].node.extend([damage, helper.make_node("Mul", ["x", "half"], ["y"])])
    onnx.save(model, str(path))
    image = np.random.default_rng(0).random((1, 3, 8, 8), np.float32)
    write_references(
        path.with_suffix(".npz"), [ReferenceCase({"input": image}, {"output": image * 2})], {}
    )
    references = read_references(path.with_suffix(".npz"))
    session = Session(path, threads=1, library=None)
    kernels: Any = Kernels(session)
    assert validate_against_references(kernels, references).passed
    assert measure_file(kernels, references).items["max_abs"] < 1e-6
    both = measure_file(kernels, references, session)
    assert both.items["max_abs"] > 0.1
    assert (len(both.sizes), len(both.body_sizes)) == (1, 1)
