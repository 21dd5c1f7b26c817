"""Files that change together: all are written under other names first, then renamed in one go."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import NystraError
from .leftovers import remove_leftovers, temporary_beside

try:
    import fcntl
except ImportError:  # Windows: two sets at once may mix, as the file that vouches tells
    fcntl = None  # type: ignore[assignment]


@contextmanager
def file_set() -> Iterator[FileSet]:
    """Yield a set of files that takes its place when the block succeeds.

    When the block or a rename raises, every file that was there is as it was and nothing else is
    left. A process that is killed while the files are renamed (an instant, in which nothing is
    written any more) leaves new files and old ones: so the file that vouches for the others by
    their hashes belongs last. Of two writers the last one wins with its whole set. What a killed
    process left is removed by the next one that writes to the folder.

    Raises:
        NystraError: A folder does not exist or cannot be written, or the disk is full.
    """
    files = FileSet()
    try:
        yield files
        files.commit()
    except OSError as error:
        reason = error.strerror or error
        raise NystraError(f"cannot write {files}: {reason}. Check the folder and disk.") from error
    finally:
        files.discard()


class FileSet:
    """Targets and the temporary files beside them, in the order in which they are renamed."""

    def __init__(self) -> None:
        """Begin without files."""
        self._temporary: dict[Path, Path] = {}

    def __str__(self) -> str:
        """Return the targets in words."""
        return ", ".join(str(target) for target in self._temporary) or "nothing"

    def temporary(self, path: str | os.PathLike[str]) -> Path:
        """Return where to write what becomes ``path``.

        The name keeps the suffix, since many writers choose a format by it.
        """
        target = Path(path)
        remove_leftovers(target.parent.absolute())
        self._temporary[target] = temporary_beside(target)
        return self._temporary[target]

    def write(self, path: str | os.PathLike[str], data: bytes) -> None:
        """Write the whole content of what becomes ``path``."""
        with self.temporary(path).open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())

    def commit(self) -> None:
        """Rename all files; on an error rename the former ones back."""
        if len(self._temporary) == 1:
            ((target, temporary),) = self._temporary.items()
            os.replace(temporary, target)
            return
        with contextlib.ExitStack() as stack:
            for folder in sorted({target.parent.resolve() for target in self._temporary}):
                stack.enter_context(_locked(folder))
            former: dict[Path, Path | None] = {}
            try:
                for target in self._temporary:
                    former[target] = _kept(target)
                for target, temporary in self._temporary.items():
                    os.replace(temporary, target)
            except BaseException:
                for target, kept in former.items():
                    _restore(target, kept, self._temporary[target])
                raise
            finally:
                for kept in former.values():
                    if kept is not None:
                        kept.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove the temporary files that are left."""
        for temporary in self._temporary.values():
            temporary.unlink(missing_ok=True)


def _kept(target: Path) -> Path | None:
    """Return another name of what is there, or None."""
    if not os.path.lexists(target):
        return None
    kept = temporary_beside(target)
    try:
        os.link(target, kept, follow_symlinks=False)
    except (OSError, NotImplementedError):  # a file system without links
        shutil.copy2(target, kept, follow_symlinks=False)
    return kept


def _restore(target: Path, kept: Path | None, temporary: Path) -> None:
    """Put back what was there, if the new file has taken its place."""
    if temporary.exists():
        return
    with contextlib.suppress(OSError):  # the first error is the one to report
        if kept is None:
            target.unlink(missing_ok=True)
        else:
            os.replace(kept, target)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder against other sets, where its file system can."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
