"""The images of a folder: in processes, in threads or one after the other."""

from __future__ import annotations

from contextlib import closing

from ...session import Session
from ..task import Report
from .image_job import ImageJob, Move
from .result import ImageResult, Pair
from .sequential import one_by_one
from .thread_pool import in_threads, most_pixels


def restore_folder(
    job: ImageJob,
    session: Session,
    pairs: list[Pair],
    move: Move,
    report: Report | None,
) -> list[ImageResult]:
    """Restore the images of a folder, and return their results in order."""
    count = len(pairs)
    processes = min(job.options.jobs or 1, count)
    moves = False
    if processes > 1:
        from .process_pool import in_processes  # most runs have one process

        source = in_processes(session, pairs, job.options, processes)
    elif (most := most_pixels(job, session, pairs)) > 0:
        source = in_threads(job, session, pairs, most)
    else:
        source, moves = one_by_one(job, pairs, move), True
    results: dict[int, ImageResult] = {}
    with closing(source) as done:
        for index, result in done:
            results[index] = result
            if not moves:
                move(len(results), count)
            if report is not None:
                report(result, len(results), count)
    return [results[index] for index in range(count)]
