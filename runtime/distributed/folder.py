"""A folder of images, each restored by the worker that is free."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ..progress import progress_bar
from ..tasks.restoration.result import ImageResult
from ..tasks.task import Report
from .worker import Failed
from .worker_pool import WorkerPool

Pair = tuple[Path, Path]


@dataclass(frozen=True)
class DistributedResult(ImageResult):
    """The result of an image that a worker restored; `ImageResult` has the rest.

    Attributes:
        worker: Name of the worker that restored it.
        tries: Number of workers that tried it.
    """

    worker: str = ""
    tries: int = 0


def run_folder(
    pool: WorkerPool, pairs: list[Pair], name: str, report: Report | None, *, quiet: bool
) -> list[ImageResult]:
    """Restore images; one that fails does not stop the others.

    The workers read and write the files themselves: only file names go over the network.

    Args:
        pool: The workers.
        pairs: Images and their outputs.
        name: Title of the progress bar.
        report: As in `run_images`.
        quiet: Show no bar.

    Returns:
        The result of each image, in the order of the pairs.

    Raises:
        NystraError: No worker is left; what is finished stays.
    """
    repeated = _repeated(pairs)
    results: dict[int, ImageResult] = {
        place: ImageResult(
            str(pairs[place][0]),
            "failed",
            error=f"{pairs[place][1]} is also the output of another image of this run: rename one "
            "of the images",
        )
        for place in repeated
    }
    places = [place for place in range(len(pairs)) if place not in repeated]
    calls = (("file", tuple(path.absolute() for path in pairs[place])) for place in places)
    with progress_bar(name, unit="image", quiet=quiet) as move:
        for result in pool.run(calls):
            place = places[result.place]
            here, there = pairs[place]
            if isinstance(result.value, Failed):
                outcome = ImageResult(str(here), "failed", error=result.value.error)
            else:
                outcome = replace(result.value, input=str(here), output=str(there))
            results[place] = DistributedResult(
                **outcome.as_dict(), worker=result.where, tries=result.tries
            )
            move(len(results), len(pairs))
            if report is not None:
                report(results[place], len(results), len(pairs))
    return [results[place] for place in sorted(results)]


def _repeated(pairs: Iterable[Pair]) -> set[int]:
    """Return the indices of pairs whose output an earlier pair has."""
    seen: set[Path] = set()
    repeated = set()
    for place, (_, there) in enumerate(pairs):
        if there in seen:
            repeated.add(place)
        seen.add(there)
    return repeated
