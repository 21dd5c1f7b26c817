"""What ``nystra run`` does: a picture, or a folder of them, through a model file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...plugins.errors import NystraError
from ..files.writing import make_folder
from ..pictures.images import (
    decode_picture,
    encode_picture,
    format_named,
    read_picture,
    write_picture,
)
from ..pictures.picture import Picture
from ..progress import progress_bar
from ..results import picture_result
from ..session import Session
from .companions import Companions
from .options import Report, RunOptions
from .processes import Done, in_processes
from .restored import restored
from .restorer import Restorer
from .session_restorer import restorer_for
from .worklist import STREAM, Naming, check_pair, list_work

_MOST_BYTES = 4 << 30

Move = Callable[[int, int], None]


def run_pictures(
    model: str | os.PathLike[str] | Session,
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: RunOptions | None = None,
    *,
    threads: int | None = None,
    library: str | Path | None = "auto",
    backend: str = "auto",
    report: Report | None = None,
    spread: Callable[[Restorer], Restorer] | None = None,
) -> list[dict[str, Any]]:
    """Run a model on one picture or on all pictures of a folder.

    Args:
        model: A model file, or a session that is already open.
        input: A picture, a folder, or ``-`` for the standard input.
        output: The picture to write, a folder, in which names stay as they are, or ``-`` for the
            standard output. A folder of pictures needs a folder; it is created.
        options: What is asked for besides.
        threads: As in `Session`.
        library: As in `Session`.
        backend: As in `Session`.
        report: Called with (result, pictures done, pictures in all) after each picture.
        spread: Returns the model with its tiles run elsewhere, by the workers of a cluster.

    Returns:
        For each picture ``input``, ``status`` (``done``, ``failed`` or ``skipped``), ``output``
        (None if it failed), ``error`` (None if it did not), ``reason`` (why it was skipped),
        ``warnings``, ``input_size`` and ``output_size`` (width, height), ``seconds`` from reading
        to writing, ``model_seconds`` of the model alone, and ``tiles``. In a folder a picture
        that fails does not stop the others: whoever calls this looks at ``status``.

    Raises:
        NystraError: The model or the only picture cannot be used, or outputs of a folder are
            there and neither ``overwrite`` nor ``skip_existing`` is set; nothing was written.
    """
    how = options or RunOptions()
    companions = how.companions()
    pairs, results, folder = plan_pictures(input, output, how)
    if not pairs:
        return results
    only: Picture | None = None
    if not folder:  # the cheaper errors come before the model is loaded
        check_pair(*pairs[0], overwrite=how.overwrite)
        only = read_input(pairs[0][0])
    session = (
        model
        if isinstance(model, Session)
        else Session(model, backend=backend, threads=threads, library=library)
    )
    restorer = restorer_for(session) if spread is None else spread(restorer_for(session))
    restorer.check_companions(how.mask is not None, how.reference is not None)
    job = PictureJob(restorer, companions, how)
    with progress_bar(Path(input).name, unit="tile", quiet=how.quiet) as move:
        if folder:
            return results + _folder(job, session, pairs, move, report)
        made = job.restore_only(*pairs[0], only, move)
        if report is not None:
            report(made, 1, 1)
    return [made]


def _folder(
    job: PictureJob,
    session: Session,
    pairs: list[tuple[Path, Path]],
    move: Move,
    report: Report | None,
) -> list[dict[str, Any]]:
    """Restore the pictures of a folder, and return what is said of them in their order."""
    count = len(pairs)
    processes = min(job.options.jobs or 1, count)
    if processes > 1:
        source = in_processes(session, pairs, job.options, processes)
    else:
        source = _one_by_one(job, pairs, move)
    made: dict[int, dict[str, Any]] = {}
    with closing(source) as done:
        for index, result in done:
            made[index] = result
            if processes > 1:
                move(len(made), count)
            if report is not None:
                report(result, len(made), count)
    return [made[index] for index in range(count)]


def _one_by_one(
    job: PictureJob, pairs: list[tuple[Path, Path]], move: Move
) -> Generator[Done, None, None]:
    """Restore pictures here, and yield place and result of each as it is done."""
    written: set[Path] = set()
    for index, (here, there) in enumerate(pairs):
        yield index, job.attempt(here, there, written, _share(move, index, len(pairs)))


def plan_pictures(
    input: str | os.PathLike[str], output: str | os.PathLike[str], how: RunOptions
) -> tuple[list[tuple[Path, Path]], list[dict[str, Any]], bool]:
    """Return what there is to do before anything is done.

    Returns:
        Pictures and their outputs; results of what is skipped; whether a folder was given.

    Raises:
        NystraError: There is nothing, or outputs of a folder exist and may not be replaced.
    """
    naming = Naming(how.format, how.suffix)
    work = list_work(Path(input), os.fspath(output), naming, recursive=how.recursive)
    results = [picture_result(path, status="skipped", reason="no picture") for path in work.skipped]
    pairs = []
    for here, there in work.pairs:
        if how.skip_existing and there != STREAM and there.exists():
            reason = f"{there} exists"
            skipped = picture_result(here, status="skipped", output=str(there), reason=reason)
            results.append(skipped)
        else:
            pairs.append((here, there))
    if work.folder:
        _check_outputs(pairs, how.overwrite)
    return pairs, results, work.folder


@dataclass(frozen=True)
class PictureJob:
    """What is the same for all pictures of a run."""

    restorer: Restorer
    companions: Companions
    options: RunOptions

    def restore_only(
        self, here: Path, there: Path, picture: Picture | None, move: Move
    ) -> dict[str, Any]:
        """Restore the only picture of a run: whatever is wrong is raised, in one line."""
        try:
            return self.restore(here, there, picture, move)
        except Exception as error:
            raise in_one_line(error, here) from error

    def attempt(self, here: Path, there: Path, written: set[Path], move: Move) -> dict[str, Any]:
        """Restore one picture of a folder: whatever is wrong with it, the others go on.

        Args:
            here: The picture.
            there: Where the result goes.
            written: Results of this run so far; this one is added.
            move: Called with (tiles done, tiles in all).
        """
        try:
            if there in written:
                raise NystraError(f"{there} is the output of another picture of this run too")
            result = self.restore(here, there, None, move)
            written.add(there)
        except Exception as error:  # one bad picture, however bad, never stops the others
            return picture_result(here, status="failed", error=str(in_one_line(error, here)))
        return result

    def restore(
        self, here: Path, there: Path, picture: Picture | None, move: Move
    ) -> dict[str, Any]:
        """Restore one picture, which may have been read already, and return what is said of it."""
        begin = time.perf_counter()
        check_pair(here, there, overwrite=self.options.overwrite)
        before = read_input(here) if picture is None else picture
        others, doubts = self.companions.read(here, before.size)
        model_begin = time.perf_counter()
        after, tiles, findings = restored(
            self.restorer, before, str(here), progress=move, **self.options.tiling, **others
        )
        model_seconds = time.perf_counter() - model_begin
        self._write(there, after)
        return picture_result(
            here,
            output=str(there),
            warnings=doubts + findings,
            input_size=before.size[::-1],
            output_size=after.size[::-1],
            seconds=time.perf_counter() - begin,
            model_seconds=model_seconds,
            tiles=tiles,
        )

    def _write(self, there: Path, picture: Picture) -> None:
        given = self.options
        if there == STREAM:
            kind = format_named(given.format or "png")
            sys.stdout.buffer.write(encode_picture(picture, kind, quality=given.quality))
            sys.stdout.buffer.flush()
        else:
            make_folder(there.parent)
            write_picture(there, picture, overwrite=given.overwrite, quality=given.quality)


def _check_outputs(pairs: list[tuple[Path, Path]], overwrite: bool) -> None:
    """Refuse a folder whose outputs are there already, before any of them is made."""
    there = [] if overwrite else [target for _, target in pairs if target.exists()]
    if there:
        raise NystraError(
            f"{len(there)} of {len(pairs)} outputs exist, the first is {there[0]}: add "
            "--skip-existing to make the others, or --overwrite to make all of them again"
        )


def read_input(path: Path) -> Picture:
    """Read a picture, or what the standard input holds.

    Raises:
        NystraError: As `read_picture`.
    """
    if path != STREAM:
        return read_picture(path)
    data = sys.stdin.buffer.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise NystraError(f"the standard input holds more than {_MOST_BYTES >> 30} GiB")
    return decode_picture(data, "the standard input")


def in_one_line(
    error: Exception,
    here: Path,
    done: str = "restored",
    advice: str = "use smaller tiles (-t 128)",
) -> NystraError:
    """Return whatever was raised over a picture or a video as an error of one line.

    Args:
        error: What was raised.
        here: The picture or video.
        done: What could not be done to it.
        advice: What to do where the memory does not suffice.
    """
    if isinstance(error, NystraError):
        return error
    if isinstance(error, MemoryError):
        return NystraError(f"the memory does not suffice for {here}: {advice}")
    reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:300]
    return NystraError(f"{here} cannot be {done}: {reason or type(error).__name__}")


def _share(move: Move, index: int, pictures: int) -> Move:
    """Return a bar mover for one of several pictures, each taken to have as many tiles."""
    return lambda done, total: move(index * total + done, pictures * total)
