"""Sets of files are replaced as a whole; a killed writer leaves the leader, which is the last."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from nystra.core.errors import NystraError
from nystra.core.files.temporary import remove_leftovers
from nystra.core.files.writing import FileSet, file_set

NAMES = ("m.json", "m.plan.json", "m.onnx", "m.npz")
RENAMED = ("m.json", "m.plan.json", "m.npz", "m.onnx")


def write(folder: Path, text: str) -> None:
    with file_set(folder / "m.onnx") as files:
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
    honest, calls = os.replace, itertools.count()

    def failing(source: Any, target: Any) -> None:
        if next(calls) == step:
            raise error
        honest(source, target)

    monkeypatch.setattr(os, "replace", failing)
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
import itertools, os, signal, sys
from pathlib import Path
from nystra.core.files.writing import file_set

folder, there, names = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]

def write(place, text):
    with file_set(place / "m.onnx") as files:
        for name in names:
            files.write(place / name, f"{name} {text}".encode())

def counted(honest):
    def call(*args, **options):
        if next(calls) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return honest(*args, **options)
    return call

def killed_at(number, place):
    global calls, last
    process = os.fork()
    if process:
        return os.waitpid(process, 0)[1] == signal.SIGKILL
    calls, last = itertools.count(), number
    os.replace, os.link = counted(os.replace), counted(os.link)
    write(place, "new")
    os._exit(0)

for number in itertools.count():
    place = folder / str(number)
    place.mkdir()
    if there:
        write(place, "old")
    if not killed_at(number, place):
        break
"""

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork, and no way to ask who lives")


@forks
@pytest.mark.parametrize("there", [True, False])
def test_a_killed_writer_leaves_the_former_leader_until_all_others_are_new(
    tmp_path: Path, there: bool
) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(int(there)), *NAMES]
    subprocess.run(command, check=True)
    before = len(NAMES) if there else 0  # second names of the former files
    for number in range(before + len(NAMES) + 1):
        folder, renamed = tmp_path / str(number), RENAMED[: max(number - before, 0)]
        former = whole("old") if there else {}
        expected = former | {name: f"{name} new" for name in renamed}
        found = contents(folder)
        assert {name: found[name] for name in found if not name.startswith(".")} == expected
        remove_leftovers.cache_clear()
        write(folder, "again")
        assert contents(folder) == whole("again")
    assert renamed == RENAMED


def test_a_set_with_the_longest_names(tmp_path: Path) -> None:
    stem = "ü" * 124
    for text in (b"old", b"new"):
        with file_set(tmp_path / f"{stem}.onnx") as files:
            files.write(tmp_path / f"{stem}.npz", text)
            files.write(tmp_path / f"{stem}.onnx", text)
    assert set(contents(tmp_path).values()) == {"new"}


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
