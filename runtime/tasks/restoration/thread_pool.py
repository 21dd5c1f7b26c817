"""Small images of a folder in parallel: one thread each, in which the model has one thread.

Cores that share one small image wait for each other more than they compute. An image that turns
out not to be small is restored after the others, by all cores together.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from ....core.cpus import usable_cpus
from ...machine.memory import available_memory
from ...session import Session
from .image_job import ImageJob
from .restorer import restorer_for
from .result import Done, Pair
from .sequential import attempt_small, one_by_one, shares_files

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
