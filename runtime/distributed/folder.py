"""A folder of images, each restored by the worker that is free."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from ..tasks.restoration.result import Done, ImageResult, Pair
from .worker import Failed
from .worker_pool import WorkerPool


@dataclass(frozen=True)
class DistributedResult(ImageResult):
    """The result of an image that a worker restored; `ImageResult` has the rest.

    Attributes:
        worker: Name of the worker that restored it.
        tries: Number of workers that tried it.
    """

    worker: str = ""
    tries: int = 0


def in_cluster(pairs: Sequence[Pair], pool: WorkerPool) -> Generator[Done, None, None]:
    """Restore images, and yield index and result of each when it is done.

    The workers read and write the files themselves: only file names go over the network.

    Raises:
        NystraError: No worker is left; what is finished stays.
    """
    calls = (("file", tuple(path.absolute() for path in pair)) for pair in pairs)
    for result in pool.run(calls):
        here, there = map(str, pairs[result.place])
        if isinstance(result.value, Failed):
            outcome = ImageResult(here, "failed", error=result.value.error)
        else:
            outcome = replace(result.value, input=here, output=there)
        yield (
            result.place,
            DistributedResult(**outcome.as_dict(), worker=result.where, tries=result.tries),
        )
