"""Writing files so that a failure leaves nothing half-written and destroys nothing."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import NystraError
from .replacing import exchange, follow_links, keep_access, sync_file, sync_tree
from .temporary import is_temporary, lock, remove_entry, remove_leftovers, temporary_path

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path, which is moved to ``path`` when the block succeeds.

    The temporary name keeps the suffix, since many writers choose a format by it. If the block
    raises, the temporary file is removed and an existing file at ``path`` is unchanged; leftovers
    of killed processes in the folder are removed. More is said at `file_set`.

    Raises:
        NystraError: The folder cannot be made or written, or the disk is full.
    """
    with file_set(path) as files:
        yield files.temporary(path)


def atomic_write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a whole file, or leave the existing one unchanged; see `file_set`.

    Raises:
        NystraError: The folder cannot be made or written, or the disk is full.
    """
    with file_set(path) as files:
        files.write(path, data)


@contextmanager
def file_set(leader: str | os.PathLike[str]) -> Iterator[FileSet]:
    """Yield a set of files that replaces the former one when the block succeeds.

    All are written under temporary names and synced before the first is renamed, and the leader is
    renamed last. If the block or a rename raises, all former files are unchanged. If the process
    is killed between two renames, the leader is the former one, whole, and some of the others are
    new: they name the leader's hash, by which readers see that.

    A file keeps its mode and, where that is permitted, its owner. Of a link the file that it leads
    to is replaced, unless another user may have planted the link: then the link is.

    Args:
        leader: The file that the others describe, and that readers open.

    Raises:
        NystraError: The folder cannot be made or written, or the disk is full. An
            `OSError` of the block that concerns other files is raised as it is.
    """
    files = FileSet(Path(leader))
    try:
        with _translate_errors(files):
            yield files
        with _translate_errors(files, all_errors=True):
            files.commit()
    finally:
        files.discard()


@contextmanager
def _translate_errors(target: object, *, all_errors: bool = False) -> Iterator[None]:
    """Turn an `OSError` into a `NystraError`, if it is one of writing the target.

    Args:
        target: For the message.
        all_errors: Whether all are: else those of temporary files, and of a full disk.
    """
    try:
        yield
    except OSError as error:
        paths = [name for name in (error.filename, error.filename2) if _is_path(name)]
        ours = any(is_temporary(os.fsdecode(name)) for name in paths)
        full = not paths and error.errno in _FULL
        if not (all_errors or ours or full):
            raise
        reason = error.strerror or error
        raise NystraError(f"cannot write {target}: {reason}. Check the folder and disk.") from error


def _is_path(name: object) -> bool:
    return isinstance(name, str | bytes | os.PathLike)


@dataclass(frozen=True)
class _File:
    """A file to write: the name that was given, the file it leads to, and the new content."""

    path: Path
    target: Path
    temporary: Path


class FileSet:
    """Targets and the temporary files next to them."""

    def __init__(self, leader: Path) -> None:
        self._leader = leader
        self._files: dict[Path, _File] = {}
        self._former: dict[Path, Path] = {}

    def __str__(self) -> str:
        return ", ".join(map(str, self._files)) or str(self._leader)

    def temporary(self, path: str | os.PathLike[str]) -> Path:
        """Return the temporary path for the new content of ``path``, which keeps its suffix.

        Raises:
            NystraError: The folder cannot be made or written, or ``path`` is neither a
                file nor a link.
        """
        source = Path(path)
        with _translate_errors(source, all_errors=True):
            target = follow_links(source)
        make_folder(target.parent)
        if target.exists() and not (target.is_file() or target.is_symlink()):
            what = "a folder" if target.is_dir() else "a device or pipe"
            raise NystraError(
                f"cannot write {path}: it is {what}, expected a file. Choose another output."
            )
        remove_leftovers(target.parent.absolute())
        new = temporary_path(target.with_name(source.name))
        self._files[source] = _File(source, target, new)
        return new

    def write(self, path: str | os.PathLike[str], data: bytes) -> None:
        """Write the whole new content of ``path``."""
        self.temporary(path).write_bytes(data)

    def commit(self) -> None:
        """Rename all files, the leader last; on an error restore the former ones."""
        files = sorted(self._files.values(), key=lambda file: file.path == self._leader)
        for file in files:
            sync_file(file.temporary)
            keep_access(file.target, file.temporary)
        if len(files) == 1:
            os.replace(files[0].temporary, files[0].target)
            return
        with lock(self._leader.parent):
            for file in files:
                if os.path.lexists(file.target):
                    self._former[file.target] = _second_name(file.target)
            try:
                for file in files:
                    os.replace(file.temporary, file.target)
            except BaseException:  # an interrupt too: the former files are put back
                self._restore(files)
                raise

    def discard(self) -> None:
        """Remove the remaining temporary files."""
        for path in (*(file.temporary for file in self._files.values()), *self._former.values()):
            remove_entry(path)

    def _restore(self, files: list[_File]) -> None:
        for file in files:
            if os.path.lexists(file.temporary):  # not renamed
                continue
            if file.target in self._former:
                os.replace(self._former[file.target], file.target)
            else:
                file.target.unlink(missing_ok=True)


def _second_name(target: Path) -> Path:
    backup = temporary_path(target)
    try:
        os.link(target, backup, follow_symlinks=False)
    except (OSError, NotImplementedError):  # a file system without links
        shutil.copy2(target, backup, follow_symlinks=False)
    return backup


@contextmanager
def atomic_folder(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a new folder, which is moved to ``path``, synced, when the block succeeds.

    If the block raises, the new folder is removed and an existing one at ``path`` is unchanged.
    Both are exchanged in one step where the system can do that. Elsewhere a process that is killed
    between two renames leaves the former one as ``<name>.former-<number>``.

    Args:
        path: The folder; its parents are created.
        overwrite: Replace an existing folder with all its content; it keeps its mode.

    Raises:
        NystraError: It exists and may not be replaced, or it cannot be written. An `OSError` of the
            block that concerns other files is raised as it is.
    """
    with _translate_errors(path, all_errors=True):
        target = follow_links(Path(path).absolute())
    if os.path.lexists(target) and not (overwrite and target.is_dir() and not target.is_symlink()):
        what = "exists" if target.is_dir() else "is a file, expected a folder"
        raise NystraError(f"{path} {what}: choose another output or add `overwrite`")
    make_folder(target.parent)
    remove_leftovers(target.parent)
    temporary = temporary_path(target)
    try:
        with _translate_errors(path, all_errors=True):
            temporary.mkdir()
        with _translate_errors(path):
            yield temporary
        with _translate_errors(path, all_errors=True):
            sync_tree(temporary)
            _move_folder(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _move_folder(temporary: Path, target: Path) -> None:
    """Move a new folder to its place; a former one has the temporary name then, or is gone."""
    if not target.exists():
        os.rename(temporary, target)
        return
    keep_access(target, temporary)
    if exchange(temporary, target):
        return
    # Clean-up never removes this name, which holds the only copy until the second rename.
    former = target.with_name(f"{target.name}.former-{secrets.token_hex(4)}")
    os.rename(target, former)
    try:
        os.rename(temporary, target)
    except BaseException:  # an interrupt too: the former file is put back
        os.rename(former, target)
        raise
    os.rename(former, temporary)


def check_new_file(
    target: Path, expected: str, source: Path | None = None, *, overwrite: bool
) -> None:
    """Raise `NystraError` if an output is a folder, its own input, or may not be replaced.

    Args:
        target: The output.
        expected: What its name should be of: an image.
        source: The input, if it is a file.
        overwrite: Whether a file of that name may be replaced.
    """
    if target.is_dir():
        raise NystraError(f"{target} is a folder, expected the name of {expected}")
    if source is not None and target.exists() and source.exists() and target.samefile(source):
        raise NystraError(f"the output {target} is the input itself: choose another output")
    if target.exists() and not overwrite:
        raise NystraError(f"{target} exists: choose another output or add `overwrite`")


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
