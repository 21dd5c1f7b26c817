"""The images of a folder: in processes, in threads, one after the other, or on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeAlias

from ...session import Session
from ..registry import Report
from .image_job import ImageJob, Move
from .result import Done, ImageResult, Pair
from .sequential import one_by_one
from .thread_pool import in_threads, most_pixels

Pool: TypeAlias = Callable[[Sequence[Pair]], Generator[Done, None, None]]
"""Restores images and yields index and result of each when it is done. No two have one output; one
that fails does not stop the others."""


def restore_folder(
    job: ImageJob, session: Session, pairs: Sequence[Pair], move: Move, report: Report | None
) -> list[ImageResult]:
    """Restore the images of a folder on this machine, and return their results in order."""
    processes = min(job.options.jobs or 1, len(pairs))
    if processes > 1:
        from .process_pool import in_processes  # most runs have one process

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
