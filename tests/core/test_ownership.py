"""Files of another user are not obeyed, whatever they are called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nystra.core.errors import NystraError
from nystra.core.files.ownership import is_trusted, require_own_folder
from nystra.core.files.temporary import remove_leftovers, remove_own, temporary_path
from nystra.runtime.compiled import cache

OTHER = 65534

as_root = pytest.mark.skipif(
    getattr(os, "geteuid", lambda: 1)() != 0, reason="only root can make files of another user"
)


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
    assert (tmp_path / dead).is_dir()


@as_root
def test_folders_of_another_user_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").mkdir()
    os.chown(tmp_path / "cache", OTHER, OTHER)
    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(NystraError, match=r"cache is not a folder of this user"):
        cache.cache_folder()


def test_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(NystraError, match=r"link is not a folder of this user.*: remove it"):
        require_own_folder(tmp_path / "link", "remove it")
    require_own_folder(tmp_path, "remove it")
    require_own_folder(tmp_path / "missing", "remove it")


def test_own_temporary_files_go(tmp_path: Path) -> None:
    left = temporary_path(tmp_path / "a")
    left.write_text("half")
    (tmp_path / "b").write_text("whole")
    remove_own()
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
