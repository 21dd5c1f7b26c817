"""Files: leftovers of a killed writer, and paths that are not plain files."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nystra.core.errors import NystraError
from nystra.core.files.temporary import remove_leftovers, temporary_path
from nystra.core.files.writing import atomic_write_bytes
from nystra.runtime.checking.baseline import read_baseline
from nystra.runtime.model.references import read_references

WRITER = """
import sys, time
from pathlib import Path
from nystra.core.files.writing import atomic_path
with atomic_path(Path(sys.argv[1])) as temporary:
    temporary.write_bytes(b"half")
    print("written", flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no way to ask whether a process lives")
def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "p.png")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        (left,) = tmp_path.iterdir()
        remove_leftovers(tmp_path)
        assert left.exists()  # its writer lives
        os.kill(process.pid, signal.SIGKILL)
    remove_leftovers.cache_clear()
    foreign = temporary_path(tmp_path / "p.png").name.replace("nystra-", "nystra-0")
    (tmp_path / foreign).write_bytes(b"of another machine")
    (tmp_path / ".p.png").write_bytes(b"of the user")
    atomic_write_bytes(tmp_path / "q.png", b"whole")
    assert sorted(item.name for item in tmp_path.iterdir()) == sorted([foreign, ".p.png", "q.png"])


def test_temporary_names_fit_where_the_name_does(tmp_path: Path) -> None:
    name = "ü" * 125 + ".png"  # 254 bytes
    atomic_write_bytes(tmp_path / name, b"whole")
    assert [item.name for item in tmp_path.iterdir()] == [name]


def test_what_may_not_be_looked_at_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unreadable folder was reported as "no baseline at"."""
    for read, missing in (
        (read_baseline, "no baseline at"),
        (read_references, "no recorded references"),
    ):
        with pytest.raises(NystraError, match=missing):
            read(tmp_path / "absent")
    lstat = os.lstat

    def closed(path: object, **how: object) -> object:
        if Path(str(path)).parent == tmp_path / "closed":
            raise PermissionError(13, "Permission denied")
        return lstat(path, **how)  # type: ignore[arg-type, call-overload]

    monkeypatch.setattr(os, "lstat", closed)
    for read, what in ((read_baseline, "baseline"), (read_references, "references")):
        with pytest.raises(NystraError, match=f"cannot read the {what} .*: Permission denied"):
            read(tmp_path / "closed" / "file")
