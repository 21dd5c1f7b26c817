"""Files that change together: whole sets or none, whatever happens in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from nystra.core.errors import NystraError
from nystra.core.files import file_set as module
from nystra.core.files.file_set import FileSet, file_set
from nystra.core.files.leftovers import remove_leftovers
from nystra.core.files.writing import atomic_path

NAMES = ("m.plan.json", "m.npz", "m.onnx", "m.json")


def write(folder: Path, text: str) -> None:
    with file_set() as files:
        for name in NAMES:
            files.write(folder / name, f"{name} {text}".encode())


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def whole(text: str) -> dict[str, str]:
    return {name: f"{name} {text}" for name in NAMES}


def test_a_set_replaces_the_one_before(tmp_path: Path) -> None:
    write(tmp_path, "old")
    write(tmp_path, "new")
    assert contents(tmp_path) == whole("new")


@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("there", [True, False])
def test_a_write_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, there: bool
) -> None:
    if there:
        write(tmp_path, "old")
    honest, calls = FileSet.write, iter(range(9))

    def full_disk(files: FileSet, path: Any, data: bytes) -> None:
        honest(files, path, data[:3])
        if next(calls) == step:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(FileSet, "write", full_disk)
    with pytest.raises(NystraError, match=r"No space left on device\. Check the folder"):
        write(tmp_path, "new")
    assert contents(tmp_path) == (whole("old") if there else {})


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("there", [True, False])
def test_a_rename_that_fails_is_undone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
    there: bool,
    error: BaseException,
) -> None:
    if there:
        write(tmp_path, "old")
    honest, calls = os.replace, iter(range(9))

    def failing(source: Any, target: Any) -> None:
        if next(calls) == step:
            raise error
        honest(source, target)

    monkeypatch.setattr(module.os, "replace", failing)
    with pytest.raises((NystraError, KeyboardInterrupt)):
        write(tmp_path, "new")
    assert contents(tmp_path) == (whole("old") if there else {})


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    write(tmp_path, "old")
    (tmp_path / "m.onnx").unlink()
    (tmp_path / "m.onnx").mkdir()
    with pytest.raises(NystraError, match=r"cannot write .*m.onnx"):
        write(tmp_path, "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NAMES)
    assert (tmp_path / "m.npz").read_text() == "m.npz old"


KILLED = """
import os, signal, sys
from pathlib import Path
from nystra.core.files import file_set as module
from nystra.core.files.file_set import file_set
honest, step = os.replace, int(sys.argv[2])
def replace(source, target):
    global step
    step -= 1
    if step < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    honest(source, target)
module.os.replace = replace
with file_set() as files:
    for name in sys.argv[3:]:
        files.write(Path(sys.argv[1], name), f"{name} new".encode())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no way to ask whether a process lives")
@pytest.mark.parametrize("step", [0, 2, 3])
def test_a_kill_leaves_what_the_last_file_tells_and_the_next_run_cleans(
    tmp_path: Path, step: int
) -> None:
    write(tmp_path, "old")
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(step), *NAMES]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    texts = contents(tmp_path)
    for place, name in enumerate(NAMES):
        assert texts[name] == f"{name} {'new' if place < step else 'old'}"
    assert len(texts) > len(NAMES), "the killed process left nothing to clean"
    remove_leftovers.cache_clear()
    with atomic_path(tmp_path / "other.txt") as temporary:
        temporary.write_text("other")
    assert sorted(contents(tmp_path)) == sorted((*NAMES, "other.txt"))
    write(tmp_path, "again")
    assert contents(tmp_path) == whole("again") | {"other.txt": "other"}


def test_of_two_writers_one_set_wins_whole(tmp_path: Path) -> None:
    def writer(text: str) -> None:
        for _ in range(40):
            write(tmp_path, text)

    threads = [threading.Thread(target=writer, args=(text,)) for text in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert contents(tmp_path) in (whole("one"), whole("two"))
