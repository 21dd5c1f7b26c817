"""An export that is killed while it renames its files: the former model runs, and is told apart."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from nystra.export.report.stage import _write_set
from nystra.runtime.model.manifest import Manifest
from runtime_models import nystra_metadata, save_upscaler

SUFFIXES = (".plan.json", ".npz", ".onnx")


def write_export(folder: Path, gain: float) -> None:
    """Write the four files of an export with the function that exports use."""
    leader = folder / "m.onnx"
    model = save_upscaler(folder / "made", gain=gain, metadata=nystra_metadata())
    contents = {leader.with_suffix(suffix): f"{gain}".encode() for suffix in SUFFIXES}
    contents[leader] = model.read_bytes()
    model.unlink()
    _write_set(leader, contents, Manifest(model="m.onnx"), leader.with_suffix(".json"))


def killed(folder: Path, place: int) -> bool:
    """Write new files in a process that is killed before a rename; False if it was not."""
    process = os.fork()
    if process:
        return bool(os.WIFSIGNALED(os.waitpid(process, 0)[1]))
    honest, calls = os.replace, itertools.count()

    def replace(source: Any, target: Any) -> None:
        if next(calls) == place:
            os.kill(os.getpid(), signal.SIGKILL)
        honest(source, target)

    os.replace = replace
    write_export(folder, 2.0)
    os._exit(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork, and no way to ask who lives")
def test_the_model_is_whole_and_its_manifest_names_every_file_of_the_other_export(
    tmp_path: Path,
) -> None:
    found = []
    for place in itertools.count():
        folder = tmp_path / str(place)
        folder.mkdir()
        write_export(folder, 1.0)
        former = (folder / "m.onnx").read_bytes()
        was_killed = killed(folder, place)
        manifest = Manifest.for_model(folder / "m.onnx")
        assert manifest is not None
        assert len(manifest.files) == len(SUFFIXES)
        assert ((folder / "m.onnx").read_bytes() == former) == was_killed
        found.append(len(manifest.problems(folder)))
        if not was_killed:
            break
    assert found == [0, 3, 2, 1, 0], "the manifest, plan, references, and last the model"
