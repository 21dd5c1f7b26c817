"""The images of a folder through a pool.

One after the other, while the files of others are read and written; small ones in threads, each
with a model of one thread: cores that share one small image wait for each other more than they
compute; or in child processes with `jobs`, or on a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from ....core.cpus import usable_cpus
from ...machine.memory import available_memory
from ...options import ClusterOptions
from ...pool.calls import Failed, Pool
from ...pool.local import Processes, Threads
from ...session import Session
from ..registry import Report
from .image_job import ImageJob, Move
from .restorer import restorer_for
from .result import Done, ImageResult, Pair
from .worker import ImageWorker

_MOST_PIXELS = 128 * 128
"""Most pixels of a small image."""

_MOST_BYTES = 64 << 10
"""Largest file of a small image; file sizes are read before files are opened."""

_MINIMUM_PER_CORE = 8
"""Images per core from which on it is faster to open the model a second time."""

ONE_BY_ONE = 2
"""Threads for images one after the other: of one the files are read or written."""

_SHARE = 4
"""A run may use a quarter of its share of the memory, so that no measurement is needed."""

Restore: TypeAlias = Callable[[Sequence[Pair]], Generator[Done, None, None]]
"""Restores images and yields index and result of each when it is done. No file that one of them
writes is read or written by another."""


def restore_folder(
    job: ImageJob,
    session: Session,
    pairs: Sequence[Pair],
    move: Move,
    report: Report | None,
    cluster: ClusterOptions | None = None,
) -> list[ImageResult]:
    """Restore the images of a folder, and return their results in order."""
    if cluster is not None:
        from .on_cluster import cluster_pool, restore_on_cluster

        with cluster_pool(session, job.options, cluster, len(pairs)) as pool:
            return restore_all(partial(restore_on_cluster, pool), pairs, move, report)
    jobs = min(job.options.jobs or 1, len(pairs))
    if jobs > 1:
        with closing(_processes(job, session, jobs)) as pool:
            return restore_all(partial(restore_files, pool), pairs, move, report)
    if (limit := parallel_limit(job, session, pairs)) > 0:
        return restore_all(partial(_small_in_threads, job, session, limit), pairs, move, report)
    with closing(_one_by_one(job, move, len({target for _, target in pairs}))) as one:
        return restore_all(partial(restore_files, one, ordered=True), pairs, None, report)


def restore_all(
    restore: Restore, pairs: Sequence[Pair], move: Move | None, report: Report | None
) -> list[ImageResult]:
    """Restore images, and return their results in order.

    Args:
        restore: Restores them.
        pairs: Images and their outputs; of two with one output the second fails, and an image that
            shares another file with an earlier one waits for it.
        move: Called with (images done, images in total) after each.
        report: Called with (result, images done, total number of images) after each.
    """
    results: dict[int, ImageResult] = {}

    def add(place: int, result: ImageResult) -> None:
        results[place] = result
        if move is not None:
            move(len(results), len(pairs))
        if report is not None:
            report(result, len(results), len(pairs))

    first: dict[Path, int] = {}
    for place, (source, target) in enumerate(pairs):
        if first.setdefault(target, place) != place:
            error = (
                f"{target} is also the output of another image of this run: rename one of the "
                "images"
            )
            add(place, ImageResult(str(source), "failed", error=error, exit_code=2))
    places = list(first.values())
    for group in groups_apart([pairs[place] for place in places]):
        with closing(restore(group)) as done:
            for index, result in done:
                add(places[index], result)
        del places[: len(group)]
    return [results[place] for place in range(len(pairs))]


def groups_apart(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Return the pairs in groups, in their order: none reads or writes what another one writes."""
    groups: list[list[Pair]] = [[]]
    read: set[Path] = set()
    written: set[Path] = set()
    for source, target in pairs:
        if source in written or target in written or target in read:
            groups.append([])
            read, written = set(), set()
        groups[-1].append((source, target))
        read.add(source)
        written.add(target)
    return groups


def restore_files(
    pool: Pool, pairs: Sequence[Pair], *, ordered: bool = False
) -> Generator[Done, None, None]:
    """Restore images by the workers of a pool, as `Restore`, or in order."""
    calls = (("file", (str(source), str(target))) for source, target in pairs)
    for done in pool.run(calls, ordered=ordered):
        source, value = pairs[done.place][0], done.value
        if isinstance(value, Failed):
            error = f"{source} cannot be restored: {value.error}"
            value = ImageResult(str(source), "failed", error=error)
        elif not isinstance(value, ImageResult):
            value = ImageResult.from_dict(value)
        yield done.place, value


def _one_by_one(job: ImageJob, move: Move, images: int) -> Threads:
    worker = ImageWorker(job, move, images)
    return Threads(worker.call, ONE_BY_ONE, worker.stop)


def _processes(job: ImageJob, session: Session, jobs: int) -> Processes:
    """Return child processes that share the memory and the threads."""
    memory = job.options.max_memory or available_memory()
    options = replace(job.options, max_memory=memory // jobs, quiet=True, jobs=None)
    threads = session.spec.threads or max((os.cpu_count() or 1) // jobs, 1)
    spec = replace(session.spec, threads=threads)
    setup = {"session": spec.as_dict(), "options": options.as_dict()}
    return Processes(f"{__package__}.remote_worker", setup, jobs)


def parallel_limit(job: ImageJob, session: Session, pairs: Sequence[Pair]) -> int:
    """Return the most pixels of an image that is restored in parallel; 0: none is.

    Args:
        job: What is the same for all images.
        session: The model as it was opened.
        pairs: Images and their outputs.
    """
    cores = _cores(session)
    if not session.kind.concurrent or cores < 2 or len(pairs) < _MINIMUM_PER_CORE * cores:
        return 0
    if len(groups_apart(pairs)) > 1 or not all(_is_small(source) for source, _ in pairs):
        return 0
    free = available_memory()
    part = min(free, job.options.max_memory or free) // (cores + 1)
    return min(job.restorer.worst.max_pixels(part // _SHARE), _MOST_PIXELS)


def _small_in_threads(
    job: ImageJob, session: Session, limit: int, pairs: Sequence[Pair]
) -> Generator[Done, None, None]:
    """Restore images with a session of one thread, and larger ones after them."""
    single = Session.open(replace(session.spec, threads=1))
    worker = ImageWorker(replace(job, restorer=restorer_for(single)))
    large = []
    with closing(Threads(worker.call, _cores(session) + 1, worker.stop)) as pool:
        calls = (("small_file", (str(source), str(target), limit)) for source, target in pairs)
        for done in pool.run(calls):
            if done.value is None:
                large.append(done.place)
            else:
                yield done.place, done.value
    with closing(_one_by_one(job, lambda done, total: None, len(large))) as pool:
        for index, result in restore_files(pool, [pairs[place] for place in large], ordered=True):
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
