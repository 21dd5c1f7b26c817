"""What is replaced stays whole, where it was and as private as it was, and is on the disk."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nystra.core.errors import NystraError
from nystra.core.files import temporary as temporary_files
from nystra.core.files import writing
from nystra.core.files.temporary import remove_leftovers, temporary_path
from nystra.core.files.writing import atomic_folder, atomic_path, atomic_write_bytes, file_set

posix = pytest.mark.skipif(os.name != "posix", reason="no fork, links and modes of POSIX")
OTHER = 65534


@contextmanager
def one_file(path: Path) -> Iterator[Path]:
    with atomic_path(path) as new:
        yield new


@contextmanager
def leader_of_two(path: Path) -> Iterator[Path]:
    with file_set(path) as files:
        files.write(path.with_name("second.json"), b"{}")
        yield files.temporary(path)


@contextmanager
def folder(path: Path) -> Iterator[Path]:
    with atomic_folder(path, overwrite=True) as new:
        yield new / "file"


WRITERS = [one_file, leader_of_two, folder]
every_writer = pytest.mark.parametrize("writer", WRITERS, ids=lambda one: one.__name__)
Writer = Callable[[Path], Any]


def fill(path: Path, text: str) -> None:
    with atomic_folder(path, overwrite=True) as new:
        (new / "frame").write_text(text)
        (new / "more").mkdir()
        (new / "more" / "frame").write_text(text)


def read(path: Path) -> list[str]:
    return [(path / "frame").read_text(), (path / "more" / "frame").read_text()]


KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from nystra.core.files import writing

path, step, exchanges = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True"
calls = iter(range(99))

def killing(honest):
    def call(*arguments, **named):
        if next(calls) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return honest(*arguments, **named)
    return call

os.rename = killing(os.rename)
shutil.rmtree = killing(shutil.rmtree)
writing.exchange = killing(writing.exchange if exchanges else lambda *_: False)
with writing.atomic_folder(path, overwrite=True) as new:
    (new / "frame").write_text("new")
    (new / "more").mkdir()
    (new / "more" / "frame").write_text("new")
"""


def killed_before(step: int, path: Path, *, exchanges: bool) -> bool:
    """Replace a folder in a process that is killed before a rename; return whether it was."""
    command = [sys.executable, "-c", KILLED, str(path), str(step), str(exchanges)]
    code = subprocess.run(command, check=False).returncode
    assert code in (0, -signal.SIGKILL)
    return code != 0


@posix
@pytest.mark.parametrize("exchanges", [True, False])
def test_a_killed_writer_of_a_folder_loses_neither(tmp_path: Path, exchanges: bool) -> None:
    for step in range(9):
        root = tmp_path / str(step)
        fill(root / "out", "old")
        killed = killed_before(step, root / "out", exchanges=exchanges)
        remove_leftovers.cache_clear()
        atomic_write_bytes(root / "other.txt", b"")
        places = [path for path in root.iterdir() if path.name.startswith("out")]
        assert places
        assert all(read(path) in (["old"] * 2, ["new"] * 2) for path in places)
        if exchanges or not killed:
            assert [path.name for path in places] == ["out"]
        if not killed:
            break
    assert step > 0


@posix
def test_a_folder_that_cannot_take_its_place_leaves_the_former(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "out", "old")
    monkeypatch.setattr(writing, "exchange", lambda *_: False)
    honest, calls = os.rename, iter(range(99))

    def failing(source: Any, target: Any) -> None:
        if next(calls) == 1:
            raise OSError(errno.EIO, "Input/output error")
        honest(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(NystraError, match="Input/output error"):
        fill(tmp_path / "out", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert read(tmp_path / "out") == ["old"] * 2


REMOVING = """
import sys
from nystra.core.files.writing import atomic_write_bytes
atomic_write_bytes(sys.argv[1], b"")
"""


@pytest.mark.parametrize("options", [["-Urpf"], ["-Urpf", "--mount-proc"]])
def test_a_process_of_another_pid_namespace_removes_no_file_of_this(
    tmp_path: Path, options: list[str]
) -> None:
    if shutil.which("unshare") is None or subprocess.run(["unshare", *options, "true"]).returncode:
        pytest.skip("no new PID namespace")
    with atomic_path(tmp_path / "a") as new:
        new.write_bytes(b"half")
        command = ["unshare", *options, sys.executable, "-c", REMOVING, str(tmp_path / "b")]
        subprocess.run(command, check=True)
        assert new.exists()


@posix
def test_owners_differ_by_machine_and_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def owner() -> str:
        return temporary_path(tmp_path / "a").name.split("-")[1]

    owners = {owner()}
    (tmp_path / "pid").touch()
    monkeypatch.setattr(temporary_files, "_PID_NAMESPACE", tmp_path / "pid")
    owners.add(owner())
    monkeypatch.setattr(temporary_files, "_machine_id", lambda: "another")
    owners.add(owner())
    assert len(owners) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are of Linux")
def test_without_a_known_namespace_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporary_files, "_PID_NAMESPACE", tmp_path / "missing")
    dead = temporary_path(tmp_path / "a").name.replace(f"-{os.getpid()}-", "-999999999-")
    (tmp_path / dead).touch()
    remove_leftovers.cache_clear()
    remove_leftovers(tmp_path)
    assert (tmp_path / dead).exists()


@posix
@every_writer
def test_everything_is_synced_before_the_first_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: Writer
) -> None:
    steps: list[str] = []

    def recording(name: str) -> None:
        honest = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            steps.append(name)
            return honest(*arguments, **options)

        monkeypatch.setattr(os, name, call)

    for name in ("fsync", "replace", "rename"):
        recording(name)
    with writer(tmp_path / "out") as new:
        new.write_bytes(b"content")
    syncs = {"one_file": 1, "leader_of_two": 2, "folder": 2}[writer.__name__]
    assert steps[:syncs] == ["fsync"] * syncs
    assert "fsync" not in steps[syncs:]
    assert len(steps) > syncs


@posix
@every_writer
def test_a_failed_sync_is_a_failed_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: Writer
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NystraError, match=r"cannot write .*out.*: Disk quota exceeded"):  # noqa: SIM117
        with writer(tmp_path / "out") as new:
            new.write_bytes(b"content")
    assert not list(tmp_path.iterdir())


@every_writer
def test_an_error_of_the_block_says_what_it_concerns(tmp_path: Path, writer: Writer) -> None:
    with pytest.raises(FileNotFoundError, match=r"input\.png"):  # noqa: SIM117
        with writer(tmp_path / "out"):
            (tmp_path / "input.png").read_bytes()
    with pytest.raises(OSError, match="Input/output error") as read_error:  # noqa: SIM117
        with writer(tmp_path / "out"):
            raise OSError(errno.EIO, "Input/output error")  # as of a read, which names no file
    assert not isinstance(read_error.value, NystraError)
    with pytest.raises(NystraError, match=r"cannot write .*out.*: No such file or directory"):  # noqa: SIM117
        with writer(tmp_path / "out") as new:
            (new / "absent" / "file").write_bytes(b"content")
    with pytest.raises(NystraError, match=r"cannot write .*out.*: No space left on device"):  # noqa: SIM117
        with writer(tmp_path / "out"):
            raise OSError(errno.ENOSPC, "No space left on device")  # as of a write


@posix
@pytest.mark.parametrize("writer", WRITERS[:2], ids=lambda one: one.__name__)
@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path, writer: Writer, there: bool) -> None:
    (tmp_path / "elsewhere").mkdir()
    real = tmp_path / "elsewhere" / "data.bin"
    if there:
        real.write_text("old")
    (tmp_path / "middle").symlink_to(Path("elsewhere", "data.bin"))
    link = tmp_path / "link.png"
    link.symlink_to(tmp_path / "middle")
    with writer(link) as new:
        assert new.suffix == ".png"  # writers choose the format by it
        assert new.parent.samefile(real.parent)  # a rename stays on one file system
        new.write_text("new")
    assert link.is_symlink()
    assert (tmp_path / "middle").is_symlink()
    assert real.read_text() == "new"


@posix
def test_a_link_to_a_folder_stays(tmp_path: Path) -> None:
    fill(tmp_path / "real", "old")
    (tmp_path / "link").symlink_to("real")
    fill(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert read(tmp_path / "real") == ["new"] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


@posix
def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(NystraError, match=r"cannot write .*a: Too many levels of symbolic links"):
        atomic_write_bytes(tmp_path / "a", b"")


@pytest.mark.skipif(
    getattr(os, "geteuid", lambda: 1)() != 0, reason="only root can make files of another user"
)
def test_a_link_that_another_user_planted_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "out").symlink_to("secret")
    os.lchown(tmp_path / "out", OTHER, OTHER)
    atomic_write_bytes(tmp_path / "out", b"new")
    assert (tmp_path / "secret").read_text() == "secret"
    assert (tmp_path / "out").read_bytes() == b"new"
    assert not (tmp_path / "out").is_symlink()
    os.lchown(tmp_path, OTHER, OTHER)  # the owner of the folder could write there anyway
    (tmp_path / "other").symlink_to("secret")
    os.lchown(tmp_path / "other", OTHER, OTHER)
    atomic_write_bytes(tmp_path / "other", b"new")
    assert (tmp_path / "secret").read_text() == "new"


@posix
@every_writer
@pytest.mark.parametrize("mode", [0o600, 0o664, 0o700])
def test_the_mode_stays(tmp_path: Path, writer: Writer, mode: int) -> None:
    out = tmp_path / "out"
    for number in range(2):
        with writer(out) as new:
            new.write_text(str(number))
        if number == 0:
            os.chmod(out, mode | (stat.S_IXUSR if out.is_dir() else 0))
            expected = out.stat().st_mode
    assert out.stat().st_mode == expected


@posix
def test_the_mode_of_a_new_file_is_that_of_any_other(tmp_path: Path) -> None:
    (tmp_path / "any").touch()
    atomic_write_bytes(tmp_path / "out", b"")
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "any").stat().st_mode


@posix
def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(NystraError, match="is a device or pipe, expected a file"):
            atomic_write_bytes(tmp_path / name, b"")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
