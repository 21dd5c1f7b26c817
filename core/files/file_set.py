"""Files that change together: all are written under other names first, then renamed."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import NystraError
from .journal import Rename, close_journal, finish, journal_path, locked, roll_back, write_journal
from .leftovers import remove_leftovers
from .temporary import temporary_path


@contextmanager
def file_set(leader: str | os.PathLike[str]) -> Iterator[FileSet]:
    """Yield a set of files that replaces the former one when the block succeeds.

    What is guaranteed:

    - The block or a rename raises: all former files are unchanged, and no others are left.
    - The process is killed at any moment: all files are the former ones, or `recover` makes all of
      them the new ones. Every reader of nystra calls it, and every writer to the folder; other
      programs may see new files next to old ones. After a power failure the same holds if the file
      system preserves synced data.
    - Of two writers the last one wins with its whole set, if the file system can lock a folder (not
    on Windows).

    Args:
        leader: The file that readers open, which gives the journal its name; the others are in its
            folder and named ``<stem>.*`` like it.

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
    """Targets and the temporary files next to them, in the order in which they are renamed."""

    def __init__(self, leader: Path) -> None:
        self._leader = leader
        self._temporary: dict[Path, Path] = {}

    def __str__(self) -> str:
        return ", ".join(str(target) for target in self._temporary) or "nothing"

    def temporary(self, path: str | os.PathLike[str]) -> Path:
        """Return the temporary path for the new content of ``path``.

        The name keeps the suffix, since many writers choose a format by it.

        Raises:
            ValueError: The file has another folder or stem than the set's leader.
        """
        target, leader = Path(path), self._leader
        own = target.name == leader.name or target.name.startswith(f"{leader.stem}.")
        if target.parent != leader.parent or not own:
            raise ValueError(f"{target} does not belong to the set of {leader}")
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
        """Rename all files; on an error restore the former ones."""
        if len(self._temporary) == 1:
            ((target, temporary),) = self._temporary.items()
            os.replace(temporary, target)
            return
        with locked(self._leader.parent):
            finish(self._leader, alone=True)
            for temporary in self._temporary.values():
                _sync(temporary)
            renames: list[Rename] = []
            try:
                for target, temporary in self._temporary.items():
                    renames.append(Rename(target.name, temporary.name, _kept(target)))
                write_journal(self._leader, renames, forward=True)
                for target, temporary in self._temporary.items():
                    os.replace(temporary, target)
            except BaseException:
                self._undo(renames)
                raise
            close_journal(self._leader, renames)

    def discard(self) -> None:
        """Remove the remaining temporary files."""
        for temporary in self._temporary.values():
            temporary.unlink(missing_ok=True)

    def _undo(self, renames: Sequence[Rename]) -> None:
        """Restore the former files; if that fails, journal and files are kept for `recover`."""
        try:
            if os.path.lexists(journal_path(self._leader)):  # else nothing was renamed
                write_journal(self._leader, renames, forward=False)
                roll_back(self._leader.parent, renames)
            close_journal(self._leader, renames)
        except OSError:  # the first error is the one to report
            self._temporary.clear()


def _kept(target: Path) -> str | None:
    """Return a second name of an existing file, or None if there is no file."""
    if not os.path.lexists(target):
        return None
    kept = temporary_path(target)
    try:
        os.link(target, kept, follow_symlinks=False)
    except (OSError, NotImplementedError):  # a file system without links
        shutil.copy2(target, kept, follow_symlinks=False)
    return kept.name


def _sync(path: Path) -> None:
    with path.open("rb") as stream, contextlib.suppress(OSError):  # Windows: open for writing only
        os.fsync(stream.fileno())
