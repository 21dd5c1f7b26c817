"""Single flipped bits of a model file: changes of images are caught when loading or validating."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from exported_files import swinir_files
from later import full
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.runtime import Session
from nystra.runtime.checking.measured import find_changes
from nystra.runtime.checking.validation import validate_against_references
from nystra.runtime.model.manifest import Manifest
from nystra.runtime.model.references import References, read_references

TOLERANCE = 1e-4
MIN_SHARE = 0.95
FRESH = np.random.default_rng(5).random((1, 3, 24, 33), np.float32)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return swinir_files(tmp_path_factory) / "model.onnx"


@dataclass
class Tally:
    """The outcomes of the flips of one part of a file."""

    flips: int = 0
    changed: int = 0
    caught: int = 0

    @property
    def share(self) -> float:
        """The share of caught flips among those that change images."""
        return self.caught / max(self.changed, 1)


def spans(content: bytes) -> dict[str, list[tuple[int, int]]]:
    """Return the positions of initializer values and of function messages in a file."""
    model = onnx.load_from_string(content)
    parts = {
        "initializers": [tensor.raw_data for tensor in model.graph.initializer],
        "bodies": [function.SerializeToString() for function in model.functions],
    }
    return {
        name: [(content.index(part), len(part)) for part in pieces if part]
        for name, pieces in parts.items()
    }


def sessions(path: Path) -> list[Session]:
    return [Session(path, threads=1), Session(path, threads=1, library=None)]


def tallied(model: Path, folder: Path, part: str, flips: int, references: References) -> Tally:
    """Flip bits one by one; the manifest, which would detect each, is left out."""
    content = model.read_bytes()
    expected = Session(model, threads=1)(FRESH)
    rng = np.random.default_rng(len(part))
    places = np.concatenate(
        [np.arange(start, start + size) for start, size in spans(content)[part]]
    )
    path = folder / "flipped.onnx"
    tally = Tally()
    for place in rng.choice(places, flips, replace=False):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        tally.flips += 1
        try:
            both = sessions(path)
            outputs = [session(FRESH) for session in both]
            caught = bool(find_changes(both[0], references)) or not all(
                validate_against_references(session, references).passed for session in both
            )
        except NystraError:
            tally.changed += 1
            tally.caught += 1
            continue
        far = any(not np.abs(output - expected).max() <= TOLERANCE for output in outputs)
        tally.changed += far
        tally.caught += far and caught
    return tally


@pytest.mark.parametrize("part", ["bodies", *full("initializers")])
def test_a_few_flips(part: str, exported: Path, tmp_path: Path) -> None:
    references = read_references(exported.with_suffix(".npz"))
    tally = tallied(exported, tmp_path, part, 8, references)
    assert tally.share >= MIN_SHARE, tally


@pytest.mark.release
@pytest.mark.parametrize("part", ["initializers", "bodies"])
def test_hundreds_of_flips(part: str, exported: Path, tmp_path: Path) -> None:
    references = read_references(exported.with_suffix(".npz"))
    tally = tallied(exported, tmp_path, part, 200, references)
    assert tally.changed >= 20, tally
    assert tally.share >= MIN_SHARE, tally


def test_with_its_manifest_every_flip_is_caught(exported: Path, tmp_path: Path) -> None:
    content = exported.read_bytes()
    manifest = Manifest.read(Manifest.path_for(exported))
    rng = np.random.default_rng(1)
    for _ in range(200):
        damaged = bytearray(content)
        damaged[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        (tmp_path / exported.name).write_bytes(damaged)
        assert len(manifest.problems(tmp_path)) == 1


def test_the_metadata_of_an_export_are_recorded(exported: Path) -> None:
    references = read_references(exported.with_suffix(".npz"))
    session = Session(exported, threads=1)
    assert references.meta["metadata"] == session.metadata
    assert find_changes(session, references) == []
    for key in session.metadata:
        kept = dict(session.metadata)
        session.metadata[key] += " "
        assert any(f"entry {key} is" in text for text in find_changes(session, references)), key
        session.metadata.clear()
        session.metadata.update(kept)


@pytest.mark.full
def test_metadata_are_held_against_the_checkpoint(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "copy.onnx"
    checkpoint = str(exported.with_name("tiny.safetensors"))
    path.write_bytes(exported.read_bytes())
    assert main(["validate", str(path), "--checkpoint", checkpoint]) == 0
    model = onnx.load(str(path))
    for entry in model.metadata_props:
        if entry.key == "nystra.tiling":
            entry.value = "internal"
    onnx.save(model, str(path))
    assert main(["validate", str(path), "--checkpoint", checkpoint]) == 1
    assert "nystra.tiling is 'internal', recorded was" in capsys.readouterr().err
