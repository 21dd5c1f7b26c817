"""Temporary folders: none remains, however the process ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import nystra
from nystra.core.errors import NystraError
from nystra.core.files.scratch import scratch_folder
from nystra.core.files.temporary import remove_leftovers

KILLED = """
import os, signal
from nystra.core.files.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "model.onnx").write_bytes(b"x")
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the system's folder of temporary files, as if it were empty."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    remove_leftovers.cache_clear()
    return tmp_path


def test_it_is_gone_after_the_block_and_after_an_error(place: Path) -> None:
    def interrupted() -> None:
        with scratch_folder() as folder:
            (folder / "a").write_text("a")
            assert folder.parent == place
            assert folder.stat().st_mode & 0o777 == 0o700
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list(place.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="nobody can say there who lives")
def test_what_a_killed_process_left_the_next_one_removes(place: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True)
    left = Path(done.stdout.strip())
    assert (left / "model.onnx").exists(), "nothing could be removed by a killed process"
    (place / "other").mkdir()
    (place / "other" / "kept").touch()
    link = left.with_name(left.name.replace("scratch", "link"))
    link.symlink_to(place / "other")
    with scratch_folder() as own:
        assert sorted(place.iterdir()) == sorted([own, place / "other"])
        assert (place / "other" / "kept").exists(), "of a link only the link is removed"


@pytest.mark.skipif(sys.platform == "win32", reason="folders have no owners there")
def test_folders_of_another_user_stay(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with scratch_folder():
        assert Path(done.stdout.strip()).is_dir()


def test_a_place_that_cannot_be_written_is_one_sentence(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(place / "none"))
    with (
        pytest.raises(NystraError, match=r"cannot create a temporary folder in .*TMPDIR"),
        scratch_folder(),
    ):
        pass


def test_no_other_module_makes_temporary_folders() -> None:
    root = Path(nystra.__file__).parent
    made = re.compile(r"TemporaryDirectory|mkdtemp|NamedTemporaryFile|mkstemp")
    packages = ("cli", "core", "deploy", "export", "models", "plugins", "runtime")
    found = [
        str(path.relative_to(root))
        for package in packages
        for path in (root / package).rglob("*.py")
        if made.search(path.read_text())
    ]
    assert found == []
