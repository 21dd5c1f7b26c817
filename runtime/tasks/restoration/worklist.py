"""The images of ``nystra run``, and the output of each."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ....core.errors import NystraError
from ....core.files.writing import check_can_make, check_folder_name
from ...images.images import READ_SUFFIXES, STREAM, SUFFIXES, Naming, check_writable, format_named

_SIGNATURES = (
    *(b"\x89PNG\r\n", b"\xff\xd8\xff", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    *(b"GIF8", b"RIFF", b"BM"),
)


@dataclass(frozen=True)
class Worklist:
    """The images of a run.

    Attributes:
        pairs: Inputs and outputs.
        skipped: Files of the folder that are not images.
        folder: The input is a folder: one bad image does not stop the others.
    """

    pairs: tuple[tuple[Path, Path], ...]
    skipped: tuple[Path, ...] = ()
    folder: bool = False


def list_work(source: Path, output: str, naming: Naming, *, recursive: bool = False) -> Worklist:
    """Return the images of a run.

    Args:
        source: An image, a folder, or `STREAM`.
        output: The output as it was given: a folder where it ends in a slash or is one.
        naming: The names of outputs.
        recursive: Take the images of subfolders too; they go into subfolders of the same names.

    Raises:
        NystraError: There is nothing to do, or input and output do not go together.
    """
    target = Path(output)
    if source == STREAM or not source.is_dir():
        list_images(source)
        into = target != STREAM and (output.endswith(("/", os.sep)) or target.is_dir())
        if not into:
            _check_format(target, naming)
        return Worklist(((source, target / naming.name(source) if into else target),))
    if target == STREAM or (target.exists() and not target.is_dir()):
        raise NystraError(
            f"the input {source} is a folder, so the output {target} has to be a folder too"
        )
    check_folder_name(output, f"a folder, since the input {source} is one")
    images, others = list_images(source, target, recursive=recursive)
    check_can_make(target)
    pairs = tuple(
        (file, target / file.relative_to(source).parent / naming.name(file)) for file in images
    )
    return Worklist(pairs, tuple(others), True)


def list_images(
    source: Path, without: Path | None = None, *, recursive: bool = False
) -> tuple[list[Path], list[Path]]:
    """Return the given images, and the other files among them.

    Args:
        source: An image, a folder, or `STREAM`.
        without: A folder to skip.
        recursive: Include subfolders.

    Raises:
        NystraError: There is no such image or folder, or the folder holds no images.
    """
    if source == STREAM or not source.is_dir():
        if source != STREAM and not os.path.lexists(source):
            raise NystraError(f"there is no image or folder at {source}")
        return [source], []
    files = _files(source, without if recursive else None, recursive)
    images = [file for file in files if _is_image(file)]
    if not images:
        advice = "" if recursive else " (`recursive` looks into subfolders)"
        kinds = ", ".join(READ_SUFFIXES)
        raise NystraError(f"the folder {source} holds no images: {kinds}{advice}")
    known = set(images)
    return images, [file for file in files if file not in known]


def check_pair(source: Path, target: Path, *, overwrite: bool) -> None:
    """Raise NystraError if an output may not be written."""
    if target == STREAM:
        return
    if source != STREAM and target.exists() and target.samefile(source):
        raise NystraError(f"the output {target} is the input itself: choose another output")
    check_writable(target, overwrite=overwrite)
    check_can_make(target.parent)


def _check_format(target: Path, naming: Naming) -> None:
    if naming.suffix:
        raise NystraError("`suffix` is for outputs in a folder: give a folder as the output")
    if target == STREAM or naming.format is None:
        return
    if SUFFIXES.get(target.suffix.lower()) != format_named(naming.format):
        raise NystraError(f"the output {target} and `format` {naming.format} contradict each other")


def _files(folder: Path, without: Path | None, recursive: bool) -> list[Path]:
    """Return the files of a folder, sorted; hidden ones and links to folders are left out."""
    files: list[Path] = []
    folders: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if not path.is_dir():
            files.append(path)
        elif recursive and not path.is_symlink() and path.resolve() != _resolved(without):
            folders.append(path)
    for path in folders:
        files.extend(_files(path, without, recursive))
    return files


def _resolved(folder: Path | None) -> Path | None:
    return None if folder is None else folder.resolve()


def _is_image(path: Path) -> bool:
    """Decide by the suffix, or by the first bytes of the file if the suffix is unknown."""
    if path.suffix.lower() in READ_SUFFIXES:
        return True
    if path.suffix or not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            head = stream.read(12)
    except OSError:
        return False
    return head.startswith(_SIGNATURES) or head[4:12] == b"ftypavif"
