"""What ``nystra run`` does: a picture, or a folder of them, through a model file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...plugins.errors import NystraError
from ..checking.sanity import find_problems
from ..files.writing import check_writable_folder, make_folder
from ..pictures.images import SUFFIXES, check_writable, read_picture, write_picture
from ..pictures.picture import Picture, resize_plane
from ..progress import progress_bar
from ..session import Session
from .companions import Companions
from .restorer import restorer_for


def run_pictures(
    model: str | os.PathLike[str] | Session,
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    tile: int = 0,
    overlap: int | None = None,
    overwrite: bool = False,
    threads: int | None = None,
    library: str | Path | None = "auto",
    backend: str = "auto",
    quiet: bool = False,
    mask: str | os.PathLike[str] | None = None,
    reference: str | os.PathLike[str] | None = None,
) -> list[dict[str, Any]]:
    """Run a model on one picture or on all pictures of a folder (not of its subfolders).

    Args:
        model: A model file, or a session that is already open.
        input: A picture or a folder.
        output: The picture to write, or a folder, in which names stay as they are. A folder of
            pictures needs a folder; it is created.
        tile: Side of the tiles in input pixels; 0 chooses by the available memory.
        overlap: Of the tiles in input pixels; None is 32, less where the tile is small.
        overwrite: Replace files that are there; never the input itself.
        threads: As in `Session`.
        library: As in `Session`.
        backend: As in `Session`.
        quiet: Show no progress bar.
        mask: For a model that fills holes: a picture, white where it is to be filled, or a
            folder of them with the names of the inputs. What is not to be filled comes out as
            it went in.
        reference: For a model that copies from another picture: that picture, or a folder.

    Returns:
        For each picture ``input``, ``output`` (None if it failed), ``error`` (None if it did
        not), ``warnings``, ``input_size`` and ``output_size`` (width, height), ``seconds`` of the
        model alone, and ``tiles``. In a folder a picture that fails does not stop the others:
        whoever calls this looks at ``error``.

    Raises:
        NystraError: The model or the only picture cannot be used; nothing was written.
    """
    source, target = Path(input), Path(output)
    companions = Companions(
        None if mask is None else Path(mask), None if reference is None else Path(reference)
    )
    companions.check_exist()
    pairs = _pairs(source, target, str(output).endswith(("/", os.sep)))
    only: Picture | None = None
    if not source.is_dir():  # the cheaper errors come before the model is loaded
        _check_pair(*pairs[0], overwrite)
        only = read_picture(source)
    session = (
        model
        if isinstance(model, Session)
        else Session(model, backend=backend, threads=threads, library=library)
    )
    restorer = restorer_for(session)
    restorer.check_companions(mask is not None, reference is not None)
    results: list[dict[str, Any]] = []
    with progress_bar(source.name, unit="tile", quiet=quiet) as move:
        for index, (here, there) in enumerate(pairs):
            try:
                _check_pair(here, there, overwrite)
                picture = only or read_picture(here)
                others, doubts = companions.read(here, picture.size)
                step = _share(move, index, len(pairs))
                run = partial(restorer, tile=tile, overlap=overlap, progress=step, **others)
                result, done = _restored(run, picture, here)
                result["warnings"] = doubts + result["warnings"]
                make_folder(there.parent)
                write_picture(there, done, overwrite=overwrite)
                results.append({**result, "output": str(there)})
            except NystraError as error:
                if not source.is_dir():
                    raise
                results.append(_result(here, error=str(error)))
    return results


def _pairs(source: Path, target: Path, wants_folder: bool) -> list[tuple[Path, Path]]:
    if not source.exists():
        raise NystraError(f"there is no picture or folder at {source}")
    if not source.is_dir():
        there = target / source.name if wants_folder or target.is_dir() else target
        return [(source, there)]
    if target.exists() and not target.is_dir():
        raise NystraError(f"the input {source} is a folder, so the output {target} must be one too")
    names = sorted(
        path.name
        for path in source.iterdir()
        if path.suffix.lower() in SUFFIXES and path.is_file() and not path.name.startswith(".")
    )
    if not names:
        raise NystraError(f"the folder {source} holds no pictures ({', '.join(SUFFIXES)})")
    _check_can_make(target)
    return [(source / name, target / name) for name in names]


def _check_pair(here: Path, there: Path, overwrite: bool) -> None:
    if there.exists() and there.samefile(here):
        raise NystraError(f"the output {there} is the input itself: choose another output")
    check_writable(there, overwrite=overwrite)
    _check_can_make(there.parent)


def _check_can_make(folder: Path) -> None:
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    check_writable_folder(existing)


def _restored(
    run: Callable[[Any], tuple[Any, int]], picture: Picture, here: Path
) -> tuple[dict[str, Any], Picture]:
    """Return what is said about one picture, and what the model made of it."""
    begin = time.perf_counter()
    try:
        pixels, tiles = run(picture.pixels)
    except MemoryError as error:
        raise NystraError(
            f"the memory does not suffice for {here}: use smaller tiles (-t 128)"
        ) from error
    seconds = time.perf_counter() - begin
    findings = find_problems(pixels, "the model's output", picture.pixels)
    if any(finding.kind != "flat" for finding in findings):
        raise NystraError("; ".join(finding.message for finding in findings) + f" for {here}")
    size = (pixels.shape[0], pixels.shape[1])
    alpha = None if picture.alpha is None else resize_plane(picture.alpha, size)
    icc = picture.icc if picture.grey == (pixels.shape[2] == 1) else None
    result = _result(
        here,
        warnings=[finding.message for finding in findings],
        input_size=picture.size[::-1],
        output_size=size[::-1],
        seconds=seconds,
        tiles=tiles,
    )
    return result, replace(picture, pixels=pixels, alpha=alpha, icc=icc)


def _result(here: Path, **values: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "input": str(here),
        "output": None,
        "error": None,
        "warnings": [],
        "input_size": None,
        "output_size": None,
        "seconds": None,
        "tiles": None,
    }
    return {**empty, **values}


def _share(
    move: Callable[[int, int], None], index: int, pictures: int
) -> Callable[[int, int], None]:
    """Return a bar mover for one of several pictures, each taken to have as many tiles."""
    return lambda done, total: move(index * total + done, pictures * total)
