"""Writing files so that a failure leaves nothing half-written and destroys nothing."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import NystraError
from .temporary import locked, remove_leftovers, temporary_path


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path next to ``path``, which is moved to ``path`` when the block succeeds.

    The temporary name keeps the suffix, since many writers choose a format by it. If the block
    raises, the temporary file is removed and an existing file at ``path`` is unchanged; leftovers
    of killed processes in the folder are removed.

    Raises:
        NystraError: The folder does not exist or cannot be written, or the disk is full.
    """
    check_writable_folder(Path(path).parent)
    with file_set(path) as files:
        yield files.temporary(path)


def atomic_write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a whole file, or leave the existing one unchanged.

    Raises:
        NystraError: The folder does not exist or cannot be written, or the disk is full.
    """
    check_writable_folder(Path(path).parent)
    with file_set(path) as files:
        files.write(path, data)


@contextmanager
def file_set(leader: str | os.PathLike[str]) -> Iterator[FileSet]:
    """Yield a set of files that replaces the former one when the block succeeds.

    All are written under temporary names and synced before the first is renamed, and the leader is
    renamed last. If the block or a rename raises, all former files are unchanged. If the process
    is killed between two renames, the leader is the former one, whole, and some of the others are
    new: they name the leader's hash, by which readers see that.

    Args:
        leader: The file that the others describe, and that readers open.

    Raises:
        NystraError: The folder does not exist or cannot be written, or the disk is full.
    """
    files = FileSet(Path(leader))
    try:
        yield files
        files.commit()
    except OSError as error:
        reason = error.strerror or error
        raise NystraError(f"cannot write {files}: {reason}. Check the folder and disk.") from error
    finally:
        files.discard()


class FileSet:
    """Targets and the temporary files next to them."""

    def __init__(self, leader: Path) -> None:
        self._leader = leader
        self._temporary: dict[Path, Path] = {}
        self._former: dict[Path, Path] = {}

    def __str__(self) -> str:
        return ", ".join(str(target) for target in self._temporary) or "nothing"

    def temporary(self, path: str | os.PathLike[str]) -> Path:
        """Return the temporary path for the new content of ``path``, which keeps its suffix."""
        target = Path(path)
        remove_leftovers(target.parent.absolute())
        self._temporary[target] = temporary_path(target)
        return self._temporary[target]

    def write(self, path: str | os.PathLike[str], data: bytes) -> None:
        """Write the whole new content of ``path``."""
        with self.temporary(path).open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())

    def commit(self) -> None:
        """Rename all files, the leader last; on an error restore the former ones."""
        targets = sorted(self._temporary, key=lambda target: target == self._leader)
        if len(targets) == 1:
            os.replace(self._temporary[targets[0]], targets[0])
            return
        with locked(self._leader.parent):
            for target in targets:
                _sync(self._temporary[target])
                if os.path.lexists(target):
                    self._former[target] = _second_name(target)
            try:
                for target in targets:
                    os.replace(self._temporary[target], target)
            except BaseException:
                self._restore(targets)
                raise

    def discard(self) -> None:
        """Remove the remaining temporary files."""
        for path in (*self._temporary.values(), *self._former.values()):
            path.unlink(missing_ok=True)

    def _restore(self, targets: list[Path]) -> None:
        for target in targets:
            if os.path.lexists(self._temporary[target]):  # not renamed
                continue
            if target in self._former:
                os.replace(self._former[target], target)
            else:
                target.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    with path.open("rb") as stream, contextlib.suppress(OSError):  # Windows: open for writing only
        os.fsync(stream.fileno())


def _second_name(target: Path) -> Path:
    kept = temporary_path(target)
    try:
        os.link(target, kept, follow_symlinks=False)
    except (OSError, NotImplementedError):  # a file system without links
        shutil.copy2(target, kept, follow_symlinks=False)
    return kept


@contextmanager
def atomic_folder(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a new folder next to ``path``, which is moved to ``path`` when the block succeeds.

    If the block raises, the new folder is removed and an existing one at ``path`` is unchanged.

    Args:
        path: The folder; its parents are created.
        overwrite: Replace an existing folder with all its content.

    Raises:
        NystraError: It exists and may not be replaced, or it cannot be written.
    """
    target = Path(path).absolute()
    if target.exists() and not (overwrite and target.is_dir()):
        what = "exists" if target.is_dir() else "is a file, expected a folder"
        raise NystraError(f"{path} {what}: choose another output or add `overwrite`")
    make_folder(target.parent)
    remove_leftovers(target.parent)
    temporary = temporary_path(target)
    try:
        temporary.mkdir()
        yield temporary
        _move_folder(temporary, target)
    except OSError as error:
        reason = error.strerror or error
        raise NystraError(f"cannot write {path}: {reason}. Check the folder and disk.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _move_folder(temporary: Path, target: Path) -> None:
    if not target.exists():
        os.rename(temporary, target)
        return
    former = temporary_path(target)
    os.rename(target, former)
    try:
        os.rename(temporary, target)
    except BaseException:
        os.rename(former, target)
        raise
    shutil.rmtree(former, ignore_errors=True)


def check_writable_folder(folder: Path) -> None:
    """Raise `NystraError` unless files can be created in the folder."""
    if not folder.exists():
        raise NystraError(f"the folder {folder} does not exist: create it or choose another output")
    if not folder.is_dir():
        raise NystraError(f"{folder} is a file, expected a folder: choose another output")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise NystraError(f"the folder {folder} is not writable: choose another output")


def check_can_make(folder: Path) -> None:
    """Raise NystraError if a folder is neither writable nor can be created."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    check_writable_folder(existing)


def check_folder_name(path: str, instead: str) -> None:
    """Raise NystraError where the name of a folder to be made is like that of a file: ``out.gif``.

    Args:
        path: As it was given: a slash at its end says that it is a folder.
        instead: What is expected, apart from a folder.
    """
    ending = re.search(r"\.(?=[0-9]*[a-z])[a-z0-9]{1,5}$", path.lower())
    if ending is not None and not Path(path).is_dir():
        raise NystraError(
            f"the output {path} looks like a {ending[0]} file: expected {instead}, or a folder, "
            f"whose name ends in a slash if it has a dot ({path}/)"
        )


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, or raise `NystraError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise NystraError(
            f"cannot create the folder {folder}: {reason}. Choose another output."
        ) from error
    check_writable_folder(folder)
