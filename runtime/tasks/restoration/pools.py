"""The images of a folder: in processes, in threads, one after the other, or on a cluster.

Processes have the model loaded each: a thread per child sends it one image at a time. If a child
dies during an image, the image has failed, and a new child replaces it. Threads share a model of
one thread, for small images: cores that share one small image wait for each other more than they
compute. An image that turns out not to be small is restored after the others, by all cores
together.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from ....core.cpus import usable_cpus
from ....core.ending import EndingSignals
from ....core.errors import NystraError
from ...machine.memory import available_memory
from ...session import Session
from ...session_spec import SessionSpec
from ...workers.child import Child, ChildError
from ...workers.loop import Send, answer_requests
from ..registry import Report
from .image_job import ImageJob, Move
from .options import RunOptions
from .restorer import restorer_for
from .result import Done, ImageResult, Pair
from .sequential import attempt, attempt_small, one_by_one, shares_files

_MOST_PIXELS = 128 * 128
"""Most pixels of a small image."""

_MOST_BYTES = 64 << 10
"""Largest file of a small image; file sizes are read before files are opened."""

_LEAST = 8
"""Images per core from which on it is faster to open the model a second time."""

_SHARE = 4
"""A run may use a quarter of its share of the memory, so that no measurement is needed."""


def most_pixels(job: ImageJob, session: Session, pairs: Sequence[Pair]) -> int:
    """Return the most pixels of an image that is restored in parallel; 0: none is.

    Args:
        job: What is the same for all images.
        session: The model as it was opened.
        pairs: Images and their outputs.
    """
    cores = _cores(session)
    if not session.kind.concurrent or cores < 2 or len(pairs) < _LEAST * cores:
        return 0
    if any(shares_files(pairs)) or not all(_is_small(here) for here, _ in pairs):
        return 0
    free = available_memory()
    part = min(free, job.options.max_memory or free) // (cores + 1)
    return min(job.restorer.worst.most_pixels(part // _SHARE), _MOST_PIXELS)


def in_threads(
    job: ImageJob, session: Session, pairs: Sequence[Pair], most: int
) -> Generator[Done, None, None]:
    """Restore images, and yield index and result of each when it is done.

    Args:
        job: What is the same for all images.
        session: The model as it was opened; it is opened again, with one thread.
        pairs: Images and their outputs, no file twice among them.
        most: As `most_pixels` returns it.
    """
    single = Session.open(replace(session.spec, threads=1))
    single_job = replace(job, restorer=restorer_for(single))
    large = []
    pool = ThreadPoolExecutor(_cores(session) + 1, "nystra-image")  # one waits for its files
    try:
        places = {
            pool.submit(attempt_small, single_job, pair, most): place
            for place, pair in enumerate(pairs)
        }
        for future in as_completed(places):
            result = future.result()
            if result is None:
                large.append(places[future])
            else:
                yield places[future], result
    finally:
        pool.shutdown(cancel_futures=True)
    rest = [pairs[place] for place in large]
    for index, result in one_by_one(job, rest, lambda done, total: None):
        yield large[index], result


def _cores(session: Session) -> int:
    """Return how many threads a session may use."""
    if session.spec.threads is not None:
        return session.spec.threads
    return usable_cpus()


def _is_small(path: Path) -> bool:
    try:
        return path.stat().st_size <= _MOST_BYTES
    except OSError:  # reading it later reports the error
        return True


_WORKER = f"{__package__}.pools"

_ANSWER_SECONDS = 7 * 24 * 3600.0
"""Seconds: an image may take long."""

_GRACE_SECONDS = 3.0
"""Seconds for the children to remove unfinished files."""


def in_processes(
    session: Session, pairs: Sequence[Pair], options: RunOptions, jobs: int
) -> Generator[Done, None, None]:
    """Restore images in child processes, and yield index and result of each when it is done.

    Args:
        session: The session of the model that every child loads.
        pairs: Inputs and outputs.
        options: The options; each child gets its share of the memory.
        jobs: Number of children.

    Raises:
        NystraError: A child cannot load the model.
    """
    children = _Children(_load_request(session, options, jobs))
    pool = ThreadPoolExecutor(jobs, "nystra-child")
    try:
        places = {pool.submit(children.restore, pair): place for place, pair in enumerate(pairs)}
        for future in as_completed(places):
            yield places[future], future.result()
    finally:
        children.end(pool)


class _Children:
    """The child processes, one for each thread that calls `restore`."""

    def __init__(self, load: dict[str, Any]) -> None:
        self._load = load
        self._own = threading.local()
        self._running: set[Child] = set()
        self._ended = False
        self._lock = threading.Lock()

    def restore(self, pair: Pair) -> ImageResult:
        """Restore an image in the child of this thread."""
        child: Child = getattr(self._own, "child", None) or self._start()
        try:
            answer = child.ask("restore", {"pair": [str(path) for path in pair]})
        except ChildError as error:
            self._own.child = None
            self._close(child)
            text = f"{pair[0]} cannot be restored: {error}"
            return ImageResult(str(pair[0]), "failed", error=text)
        self._own.child = child
        return ImageResult.from_dict(answer["result"])

    def end(self, pool: ThreadPoolExecutor) -> None:
        """End the children, even busy ones, and then the threads."""
        pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._ended = True
            for child in self._running:
                child.interrupt()
        late = threading.Timer(_GRACE_SECONDS, self._kill)
        late.start()
        pool.shutdown()
        late.cancel()
        for child in tuple(self._running):
            self._close(child)

    def _kill(self) -> None:
        with self._lock:
            for child in self._running:
                child.interrupt(force=True)

    def _start(self) -> Child:
        child = Child(_WORKER, _ANSWER_SECONDS)
        with self._lock:
            self._running.add(child)
            if self._ended:
                child.interrupt()
        try:
            child.ask("load", self._load)
        except ChildError as error:
            self._close(child)
            raise NystraError(
                f"a worker process cannot load the model: {error}. Use fewer `jobs`"
            ) from error
        return child

    def _close(self, child: Child) -> None:
        with self._lock:
            self._running.discard(child)
        child.close()


def _load_request(session: Session, options: RunOptions, jobs: int) -> dict[str, Any]:
    """Return the request that loads the model in a child, with its share of threads and memory."""
    memory = options.max_memory or available_memory()
    shared = replace(options, max_memory=memory // jobs, quiet=True, jobs=None)
    threads = session.spec.threads or max((os.cpu_count() or 1) // jobs, 1)
    return {
        "session": replace(session.spec, threads=threads).as_dict(),
        "options": shared.as_dict(),
    }


Pool: TypeAlias = Callable[[Sequence[Pair]], Generator[Done, None, None]]
"""Restores images and yields index and result of each when it is done. No two have one output; one
that fails does not stop the others."""


def restore_folder(
    job: ImageJob, session: Session, pairs: Sequence[Pair], move: Move, report: Report | None
) -> list[ImageResult]:
    """Restore the images of a folder on this machine, and return their results in order."""
    processes = min(job.options.jobs or 1, len(pairs))
    if processes > 1:
        pool: Pool = partial(in_processes, session, options=job.options, jobs=processes)
    elif (most := most_pixels(job, session, pairs)) > 0:
        pool = partial(in_threads, job, session, most=most)
    else:
        return restore_all(partial(one_by_one, job, move=move), pairs, None, report)
    return restore_all(pool, pairs, move, report)


def restore_all(
    pool: Pool, pairs: Sequence[Pair], move: Move | None, report: Report | None
) -> list[ImageResult]:
    """Restore images, and return their results in order.

    Args:
        pool: Restores them.
        pairs: Images and their outputs; of two with one output the second fails.
        move: Called with (images done, images in total) after each.
        report: Called with (result, images done, images in total) after each.
    """
    results: dict[int, ImageResult] = {}

    def add(place: int, result: ImageResult) -> None:
        results[place] = result
        if move is not None:
            move(len(results), len(pairs))
        if report is not None:
            report(result, len(results), len(pairs))

    first: dict[Path, int] = {}
    for place, (here, there) in enumerate(pairs):
        if first.setdefault(there, place) != place:
            error = (
                f"{there} is also the output of another image of this run: rename one of the images"
            )
            add(place, ImageResult(str(here), "failed", error=error, exit_code=2))
    places = list(first.values())
    with closing(pool([pairs[place] for place in places])) as done:
        for index, result in done:
            add(places[index], result)
    return [results[place] for place in range(len(pairs))]


class _ImageWorker:
    """What runs in a child: loads one model and restores images on request.

    ``{"do": "load", "session": as `SessionSpec.as_dict`, "options": {...}}`` -> ``{}``;
    ``{"do": "restore", "pair": [input, output]}`` -> ``{"result": {...}}``, as
    `ImageResult.as_dict`.
    """

    def __init__(self) -> None:
        self._job: ImageJob | None = None

    def answer(self, request: Mapping[str, Any], _send: Send) -> dict[str, Any]:
        if request["do"] == "load":
            options = RunOptions(**request["options"])
            session = Session.open(SessionSpec.from_dict(request["session"]))
            self._job = ImageJob(restorer_for(session), options)
            return {}
        if self._job is None:
            raise NystraError("a worker process got images before it loaded a model")
        result = attempt(self._job, (Path(request["pair"][0]), Path(request["pair"][1])))
        return {"result": result.as_dict()}


def _stop(_number: int) -> NoReturn:
    """End, and remove unfinished files."""
    raise SystemExit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent says when to end
    with EndingSignals([signal.SIGTERM], _stop, "ended by SIGTERM"):
        sys.exit(answer_requests(_ImageWorker().answer))
