"""The images of a folder, shared by child processes that each have the model loaded.

If a child process dies during an image, the image has failed (`workers.pool`).
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....core.errors import NystraError
from ...machine.memory import available_memory
from ...session import Session
from ...workers.child import ChildError
from ...workers.pool import ChildPool
from .options import RunOptions
from .result import Done, ImageResult, Pair

_WORKER = "nystra.runtime.tasks.restoration.image_worker"


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
    groups = _by_output(pairs)
    requests = [
        {"pairs": [[str(path) for path in pairs[place]] for place in places]} for places in groups
    ]
    pool = ChildPool(_WORKER, _request(session, options, jobs), "restore", requests, jobs)
    try:
        for index, answer in pool.answers():
            yield from zip(groups[index], _results(answer, pairs, groups[index]), strict=True)
    except ChildError as error:
        raise NystraError(
            f"a worker process cannot load the model: {error}. Use fewer `jobs`"
        ) from error
    finally:
        pool.end()


def _results(
    answer: dict[str, Any] | ChildError, pairs: Sequence[Pair], places: Sequence[int]
) -> list[ImageResult]:
    """Return the results of the images of one request."""
    if not isinstance(answer, ChildError):
        return [ImageResult.from_dict(result) for result in answer["results"]]
    inputs = [str(pairs[place][0]) for place in places]
    return [
        ImageResult(name, "failed", error=f"{name} cannot be restored: {answer}") for name in inputs
    ]


def _request(session: Session, options: RunOptions, jobs: int) -> dict[str, Any]:
    """Return the request that loads the model in a child, with its share of threads and memory."""
    memory = options.max_memory or available_memory()
    shared = replace(options, max_memory=memory // jobs, quiet=True, jobs=None)
    threads = session.spec.threads or max((os.cpu_count() or 1) // jobs, 1)
    return {
        "session": replace(session.spec, threads=threads).as_dict(),
        "options": shared.as_dict(),
    }


def _by_output(pairs: Sequence[Pair]) -> list[list[int]]:
    """Return the indices of the pairs in groups of one output each, for the children in turn."""
    places: dict[Path, list[int]] = {}
    for place, (_, there) in enumerate(pairs):
        places.setdefault(there, []).append(place)
    return list(places.values())
