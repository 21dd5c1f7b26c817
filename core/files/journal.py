"""The journal of a set of files that is being renamed, against mixtures of old and new files.

Before the first rename, when all new files are on the disk under temporary names, the journal
``.<name>.journal`` next to the set is written and synced: from then on the set counts as written.
It is removed after the last rename. A process that finds the journal of a dead writer finishes the
renames, or undoes them if the writer had begun to undo them (`recover`).

The journal is untrusted data: it may only rename temporary files of nystra to names of its own set,
``<stem>.*`` in its own folder; and it, like the files that it renames, must be trusted
(`ownership`). Another user's journal is ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import NystraError
from ..json_text import stable_json
from ..strict_json import MAXIMUM_BYTES, parse_json
from .ownership import is_trusted, read_trusted
from .temporary import owner_lives, temporary_path

try:
    import fcntl
except ImportError:  # Windows: folders cannot be locked
    fcntl = None  # type: ignore[assignment]

SCHEMA_VERSION = 1
SUFFIX = ".journal"

_LONGEST_NAME = 200  # bytes, of 255 that file systems allow


@dataclass(frozen=True)
class Rename:
    """One file of a set.

    Attributes:
        name: Name of the file in its place.
        temporary: Name under which the new file was written.
        former: Second name of the former file, or None if there was none.
    """

    name: str
    temporary: str
    former: str | None


def journal_path(leader: Path) -> Path:
    """Return the path of a set's journal.

    Args:
        leader: The file of the set that readers open.
    """
    name = os.fsencode(leader.name)
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(name).hexdigest()[:16]
        return leader.with_name(f".{digest}{SUFFIX}")
    return leader.with_name(f".{leader.name}{SUFFIX}")


def write_journal(leader: Path, renames: Sequence[Rename], *, forward: bool) -> None:
    """Write the journal of a set, or replace it, and wait until it is on the disk.

    Args:
        leader: The file of the set that readers open.
        renames: All files of the set.
        forward: Whether to rename the new files, or to restore the former ones.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        "leader": leader.name,
        "forward": forward,
        "files": [asdict(rename) for rename in renames],
    }
    temporary = temporary_path(leader)
    try:
        with open(temporary, "wb", opener=_privately) as stream:
            stream.write(stable_json(document))
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, journal_path(leader))
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(leader.parent)


def roll_forward(folder: Path, renames: Sequence[Rename]) -> None:
    """Rename the new files that are not renamed yet."""
    for rename in renames:
        if is_trusted(folder / rename.temporary):  # else it is there already
            os.replace(folder / rename.temporary, folder / rename.name)


def roll_back(folder: Path, renames: Sequence[Rename]) -> None:
    """Restore the former files that were replaced; remove the new ones."""
    for rename in renames:
        moved = not is_trusted(folder / rename.temporary)
        if rename.former is None:
            if moved:
                (folder / rename.name).unlink(missing_ok=True)
        elif moved and is_trusted(folder / rename.former, linked=True):  # else it is back already
            os.replace(folder / rename.former, folder / rename.name)


def close_journal(leader: Path, renames: Sequence[Rename]) -> None:
    """Remove the journal once the renames are on the disk, then the remaining files."""
    sync_folder(leader.parent)
    journal_path(leader).unlink(missing_ok=True)
    for rename in renames:
        for name in (rename.temporary, rename.former):
            if name is not None:
                (leader.parent / name).unlink(missing_ok=True)


def recover(leader: str | os.PathLike[str]) -> None:
    """Finish a set whose writer was killed while it renamed the files; call it before reading.

    Does nothing if there is no journal, if its writer may still run (on another machine, or
    anywhere on Windows, where the next writer of the set recovers it), or if the folder cannot be
    written: the files are then read as they are.

    Args:
        leader: The file of the set that readers open; it need not exist.

    Raises:
        NystraError: The journal was not written by nystra, or is damaged.
    """
    path = Path(leader)
    if path.name and os.path.lexists(journal_path(path)):
        with contextlib.suppress(OSError), locked(path.parent) as alone:
            finish(path, alone=alone)


def finish(leader: Path, *, alone: bool) -> None:
    """Execute the journal of a set if there is one; the folder is locked if possible.

    Args:
        leader: The file of the set that readers open.
        alone: No other process renames files there.

    Raises:
        NystraError: The journal was not written by nystra, or is damaged.
    """
    path = journal_path(leader)
    data = read_trusted(path, MAXIMUM_BYTES)
    if data is None:  # another process finished it meanwhile, or it is not trusted
        return
    renames, forward = _parsed(data, path, leader)
    if not alone and any(owner_lives(rename.temporary) for rename in renames):
        return
    (roll_forward if forward else roll_back)(leader.parent, renames)
    close_journal(leader, renames)


def recover_folder(folder: Path) -> bool:
    """Recover all sets of a folder; return whether no trusted journal is left.

    A journal that cannot be read is kept for the next reader of its set.
    """
    done = True
    for path in folder.glob(f".*{SUFFIX}"):
        with contextlib.suppress(NystraError, KeyError, TypeError, ValueError):
            data = read_trusted(path, MAXIMUM_BYTES)
            if data is None:
                continue
            leader = folder / parse_json(data, "the journal")["leader"]
            if journal_path(leader) == path:
                recover(leader)
        done &= not os.path.lexists(path)
    return done


def has_journal(folder: Path) -> bool:
    """Return whether a folder has a journal of any set."""
    return any(folder.glob(f".*{SUFFIX}"))


@contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Lock a folder against other sets; yield whether it is locked.

    Args:
        folder: The folder.
        wait: Wait for another process that has locked it.
    """
    if fcntl is None:
        yield False
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, if the system supports that."""
    with contextlib.suppress(OSError):  # Windows opens no folder
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _privately(path: str, flags: int) -> int:
    """Open a file that this user alone can change, whatever the umask."""
    return os.open(path, flags, 0o600)


def _parsed(data: bytes, path: Path, leader: Path) -> tuple[list[Rename], bool]:
    """Return the renames of a journal and whether they go forward.

    Raises:
        NystraError: It is not of the form that `write_journal` writes, or names other files.
    """
    document = parse_json(data, f"the journal {path}")
    try:
        renames = [Rename(**entry) for entry in document["files"]]
        version, forward = document["schema_version"], document["forward"]
        good = version == SCHEMA_VERSION and isinstance(forward, bool) and bool(renames)
        good = good and all(_belongs(rename, leader) for rename in renames)
    except (KeyError, TypeError):
        good = False
    if not good:
        raise NystraError(
            f"the journal {path} is damaged or not written by nystra: the files {leader.stem}.* "
            "may be of two different runs; remove the journal and write them again"
        )
    return renames, forward


def _belongs(rename: Rename, leader: Path) -> bool:
    """Whether a rename stays within its set: temporary names of nystra, and names of the set."""
    hidden: list[Any] = [rename.temporary, *([] if rename.former is None else [rename.former])]
    if not all(isinstance(name, str) and _is_plain(name) for name in (rename.name, *hidden)):
        return False
    own = rename.name == leader.name or rename.name.startswith(f"{leader.stem}.")
    return own and all(owner_lives(name) is not None for name in hidden)


def _is_plain(name: str) -> bool:
    return not set(name) & {"/", "\\", "\0", ":"}
