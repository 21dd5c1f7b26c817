"""Sets of files are replaced as a whole or not at all, whatever happens in between."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from nystra.core.errors import NystraError
from nystra.core.files.file_set import FileSet, file_set
from nystra.core.files.journal import journal_path, recover
from nystra.core.files.leftovers import remove_leftovers
from nystra.core.files.temporary import temporary_path
from nystra.core.files.writing import atomic_path

NAMES = ("m.plan.json", "m.npz", "m.onnx", "m.json")


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
@pytest.mark.parametrize("step", range(5))  # the journal and four files
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
import itertools, os, pathlib, shutil, signal, sys
from pathlib import Path
from nystra.core.errors import NystraError
from nystra.core.files.file_set import file_set
from nystra.core.files.journal import recover

folder, there, failing, recovered = Path(sys.argv[1]), *(int(text) for text in sys.argv[2:5])
names = sys.argv[5:]

def write(place, text):
    with file_set(place / "m.onnx") as files:
        for name in names:
            files.write(place / name, f"{name} {text}".encode())

def counted(honest):
    def call(*args, **options):
        number = next(calls)
        if number == last:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == failing:
            raise OSError(5, "Input/output error")
        return honest(*args, **options)
    return call

def killed_at(number, act):
    global calls, last
    process = os.fork()
    if process:
        return os.waitpid(process, 0)[1] == signal.SIGKILL
    calls, last = itertools.count(), number
    for name in ("replace", "link", "unlink"):
        setattr(os, name, counted(getattr(os, name)))
    if sys.version_info < (3, 11):  # where pathlib keeps the function that it was imported with
        pathlib._NormalAccessor.unlink = staticmethod(os.unlink)
    try:
        act()
    except NystraError:
        pass
    os._exit(0)

for number in itertools.count():
    place = folder / str(number)
    place.mkdir()
    if there:
        write(place, "old")
    if not recovered:
        if not killed_at(number, lambda: write(place, "new")):
            break
        continue
    killed_at(recovered, lambda: write(place, "new"))
    if not killed_at(number, lambda: recover(place / "m.onnx")):
        break
"""


def kill(folder: Path, *, there: bool, failing: int = -1, recovered: int = 0) -> list[Path]:
    """Kill writers of a set before each change of their folder; return the folders.

    Args:
        folder: Where the folders are made, one for each kill; in the last one nobody was killed.
        there: A set lies there already.
        failing: The change that fails with an error, so that the writer puts the old set back.
        recovered: Kill each writer at this change, and who recovers its set at each of his.
    """
    numbers = [str(int(there)), str(failing), str(recovered)]
    subprocess.run([sys.executable, "-c", KILLED, str(folder), *numbers, *NAMES], check=True)
    return [folder / str(number) for number in range(len(list(folder.iterdir())))]


def recovered_set(folder: Path) -> str:
    """Return which set a folder holds after it is recovered; it must be whole."""
    recover(folder / "m.onnx")
    texts = {name: text for name, text in contents(folder).items() if not name.startswith(".")}
    known = {"old": whole("old"), "new": whole("new"), "none": {}}
    (found,) = [name for name, content in known.items() if texts == content]
    return found


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork, and no way to ask who lives")


@forks
@pytest.mark.parametrize("there", [True, False])
def test_a_killed_writer_leaves_all_files_old_or_all_new(tmp_path: Path, there: bool) -> None:
    folders = kill(tmp_path, there=there)
    found = [recovered_set(folder) for folder in folders]
    old, renames = "old" if there else "none", len(NAMES)
    assert found == sorted(found, key=["none", "old", "new"].index)
    assert found.count(old) == (renames if there else 0) + 1, "killed before the journal is there"
    assert found.count("new") > renames
    for folder in folders:
        remove_leftovers.cache_clear()
        write(folder, "again")
        assert contents(folder) == whole("again")


@forks
def test_a_mix_without_recovery_is_what_the_journal_mends(tmp_path: Path) -> None:
    mixed = [
        folder
        for folder in kill(tmp_path, there=True)
        if len({text.split()[1] for name, text in contents(folder).items() if name in NAMES}) > 1
    ]
    assert len(mixed) == len(NAMES) - 1


@forks
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_writer_killed_while_it_puts_the_old_set_back(
    tmp_path: Path, there: bool, failing: int
) -> None:
    links = len(NAMES) if there else 0
    folders = kill(tmp_path, there=there, failing=links + failing)
    found = [recovered_set(folder) for folder in folders]
    assert set(found) <= {"old" if there else "none", "new"}
    assert found[-1] == ("old" if there else "none"), "who is not killed has put it back"
    before = links + failing + 2  # its own journal and the one of the way back are written
    assert set(found[before:]) == {found[-1]}


@forks
def test_recovery_may_be_killed_too(tmp_path: Path) -> None:
    links = len(NAMES)
    folders = kill(tmp_path, there=True, recovered=links + 3)
    assert len(folders) > len(NAMES)
    assert {recovered_set(folder) for folder in folders} == {"new"}


@forks
def test_any_writer_to_the_folder_recovers_its_sets(tmp_path: Path) -> None:
    folder = kill(tmp_path, there=True)[len(NAMES) + 3]
    remove_leftovers.cache_clear()
    with atomic_path(folder / "other.txt") as temporary:
        temporary.write_text("other")
    assert contents(folder) == whole("new") | {"other.txt": "other"}


@forks
@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_read_as_it_is(tmp_path: Path) -> None:
    folder = kill(tmp_path, there=True)[len(NAMES) + 3]
    before = contents(folder)
    folder.chmod(0o500)
    recover(folder / "m.onnx")
    folder.chmod(0o700)
    assert contents(folder) == before


def test_a_folder_whose_files_cannot_be_renamed_is_read_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = pending(tmp_path)

    def read_only(*_: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "replace", read_only)
    recover(tmp_path / "m.onnx")
    assert contents(tmp_path) == left
    monkeypatch.undo()
    recover(tmp_path / "m.onnx")
    assert contents(tmp_path) == {"m.npz": "new"}


def pending(folder: Path, **changes: Any) -> dict[str, str]:
    """Leave the journal of a set, with changes of its one entry; return what is in the folder."""
    temporary = temporary_path(folder / "m.npz")
    temporary.write_text("new")
    entry = {"name": "m.npz", "temporary": temporary.name, "former": None} | changes
    journal = {"schema_version": 1, "leader": "m.onnx", "forward": True, "files": [entry]}
    journal_path(folder / "m.onnx").write_text(json.dumps(journal))
    return contents(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../m.npz"},
        {"name": "/tmp/m.npz"},
        {"name": "m.npz/../../m.npz"},
        {"name": "..\\m.npz"},
        {"name": "other.npz"},
        {"name": "m"},
        {"name": ""},
        {"name": 3},
        {"temporary": "../secret"},
        {"temporary": "secret"},
        {"temporary": "m.onnx"},
        {"temporary": ".m.nystra-00000000-1-00000000/../secret"},
        {"former": "secret"},
        {"former": ["secret"]},
        {"more": 1},
    ],
)
def test_a_hostile_journal_moves_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret")
    (folder / "secret").write_text("secret")
    left = pending(folder, **changes)
    with pytest.raises(
        NystraError, match=r"journal .*\.m\.onnx\.journal is damaged or not written by nystra"
    ):
        recover(folder / "m.onnx")
    remove_leftovers.cache_clear()
    with atomic_path(folder / "q.png") as temporary:
        temporary.write_text("image")
    assert contents(folder) == left | {"q.png": "image"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "secret"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", '{"files": []}', '{"files": [1]}'])
def test_a_journal_that_is_none_is_one_clear_error(tmp_path: Path, text: str) -> None:
    journal_path(tmp_path / "m.onnx").write_text(text)
    with pytest.raises(NystraError, match="the journal"):
        recover(tmp_path / "m.onnx")
    with pytest.raises(NystraError, match="the journal"):
        write(tmp_path, "new")


def test_a_set_has_one_folder_and_one_stem(tmp_path: Path) -> None:
    for name in ("other.onnx", "folder/m.onnx", "../m.json", "mm.onnx"):
        with (
            pytest.raises(ValueError, match="does not belong to the set"),
            file_set(tmp_path / "m.onnx") as files,
        ):
            files.write(tmp_path / name, b"")


def test_the_journal_of_a_long_name_fits(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("leader", ["", "..", "../m.onnx", "a\0", 3, None, "x.onnx"])
def test_a_journal_of_another_leader_is_left(tmp_path: Path, leader: Any) -> None:
    pending(tmp_path)
    path = journal_path(tmp_path / "m.onnx")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"leader": leader}))
    left = contents(tmp_path)
    remove_leftovers.cache_clear()
    with atomic_path(tmp_path / "q.png") as temporary:
        temporary.write_text("image")
    assert contents(tmp_path) == left | {"q.png": "image"}


def test_what_has_no_name_has_no_journal() -> None:
    recover("")
    recover(".")
    recover("/")
