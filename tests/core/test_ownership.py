"""Files of another user are not obeyed, whatever they are called."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nystra.core.errors import NystraError
from nystra.core.files import scratch
from nystra.core.files.journal import journal_path, recover
from nystra.core.files.leftovers import remove_leftovers, remove_own
from nystra.core.files.ownership import is_trusted, require_own_folder
from nystra.core.files.temporary import temporary_path
from nystra.core.files.writing import atomic_write_bytes
from nystra.runtime.engines import cache
from nystra.runtime.video.parts import Parts

OTHER = 65534

as_root = pytest.mark.skipif(
    getattr(os, "geteuid", lambda: 1)() != 0, reason="only root can make files of another user"
)


def pending(folder: Path) -> tuple[Path, Path]:
    """Leave a set of one file whose writer was killed; return its journal and its new file."""
    temporary, journal = temporary_path(folder / "m.npz"), journal_path(folder / "m.onnx")
    temporary.write_text("new")
    entry = {"name": "m.npz", "temporary": temporary.name, "former": None}
    content = {"schema_version": 1, "leader": "m.onnx", "forward": True, "files": [entry]}
    journal.write_text(json.dumps(content))
    return journal, temporary


@as_root
@pytest.mark.parametrize("part", ["journal", "temporary"])
def test_the_journal_and_the_files_of_another_user(tmp_path: Path, part: str) -> None:
    (tmp_path / "m.npz").write_text("old")
    journal, temporary = pending(tmp_path)
    os.chown(journal if part == "journal" else temporary, OTHER, OTHER)
    recover(tmp_path / "m.onnx")
    assert (tmp_path / "m.npz").read_text() == "old"
    atomic_write_bytes(tmp_path / "m.npz", b"new")
    assert (tmp_path / "m.npz").read_text() == "new"


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_journal_that_is_a_link(tmp_path: Path, link: object) -> None:
    (tmp_path / "m.npz").write_text("old")
    journal, _ = pending(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    journal.rename(elsewhere)
    assert callable(link)
    link(elsewhere, journal)
    recover(tmp_path / "m.onnx")
    assert (tmp_path / "m.npz").read_text() == "old"


@as_root
def test_the_owner_of_the_folder_is_trusted(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("a")
    os.chown(path, OTHER, OTHER)
    assert not is_trusted(path)
    os.chown(tmp_path, OTHER, OTHER)
    assert is_trusted(path)


@as_root
def test_leftovers_of_another_user_stay(tmp_path: Path) -> None:
    dead = temporary_path(tmp_path / "a").name.replace(f"-{os.getpid()}-", "-999999999-")
    (tmp_path / dead).mkdir()
    os.chown(tmp_path / dead, OTHER, OTHER)
    remove_leftovers.cache_clear()
    remove_leftovers(tmp_path)
    scratch._remove_dead.cache_clear()
    scratch._remove_dead(tmp_path)
    assert (tmp_path / dead).is_dir()


@as_root
def test_folders_of_another_user_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("clip.mp4.parts", "cache"):
        (tmp_path / name).mkdir()
        os.chown(tmp_path / name, OTHER, OTHER)
    for fresh in (False, True):
        with pytest.raises(NystraError, match=r"parts is not a folder of this user"):
            Parts(tmp_path / "clip.mp4", {}, fresh=fresh)
    monkeypatch.setenv(cache.CACHE_VARIABLE, str(tmp_path / "cache"))
    with pytest.raises(NystraError, match=r"cache is not a folder of this user"):
        cache.cache_folder()


def test_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(NystraError, match=r"link is not a folder of this user.*: remove it"):
        require_own_folder(tmp_path / "link", "remove it")
    require_own_folder(tmp_path, "remove it")
    require_own_folder(tmp_path / "missing", "remove it")


def test_own_temporary_files_go_unless_a_journal_needs_them(tmp_path: Path) -> None:
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    left = temporary_path(tmp_path / "without" / "a")
    left.write_text("half")
    kept = pending(tmp_path / "with")
    remove_own()
    assert not left.exists()
    assert all(path.exists() for path in kept)
