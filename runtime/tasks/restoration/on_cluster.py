"""A pool on a cluster, for the images of a folder and the frames of a video.

Model, inputs and outputs have the same paths on all machines. The outputs are bit-identical to
those of this process if a tile size is given: an automatic one depends on the memory of each
machine.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ....core.errors import NystraError
from ....core.files.reading import file_sha256
from ...options import ClusterOptions
from ...pool.calls import Failed
from ...pool.ray import Cluster, connect
from ...session import Session
from .options import RunOptions
from .remote_worker import RemoteWorker, Setup
from .result import Done, ImageResult, Pair


@dataclass(frozen=True)
class DistributedResult(ImageResult):
    """The result of an image that a worker restored; `ImageResult` has the rest.

    Attributes:
        worker: Name of the worker that restored it.
        tries: Number of workers that tried it.
    """

    worker: str = ""
    tries: int = 0


def _make_absolute(path: Path) -> str:
    return str(path.absolute())


def restore_on_cluster(pool: Cluster, pairs: Sequence[Pair]) -> Generator[Done, None, None]:
    """Restore images, and yield index and result of each when it is done.

    The workers read and write the files themselves: only file names go over the network.

    Raises:
        NystraError: No worker is left; what is finished stays.
    """
    calls = (("file", tuple(map(_make_absolute, pair))) for pair in pairs)
    for done in pool.run(calls):
        source, target = map(str, pairs[done.place])
        if isinstance(done.value, Failed):
            result = ImageResult(source, "failed", error=done.value.error)
        else:
            result = replace(done.value, input=source, output=target)
        distributed = DistributedResult(**result.as_dict(), worker=done.where, tries=done.tries)
        yield done.place, distributed


@contextmanager
def cluster_pool(
    session: Session, how: RunOptions, cluster: ClusterOptions, limit: int | None = None
) -> Iterator[Cluster]:
    """Yield requested workers, which end with the block.

    Args:
        session: The model as it runs here; the workers open the same file.
        how: Settings of the run.
        cluster: Which cluster, and how much of it.
        limit: The largest number of workers with something to do.

    Raises:
        NystraError: The cluster is too small.
        BackendUnavailableError: Ray is missing, or no cluster answers within ten seconds.
    """
    gpu = session.kind.device == "cuda"
    inputs: dict[str, Any] = {
        key: value.absolute() if isinstance(value, Path) else value.tolist()
        for key, value in how.auxiliary().items()
    }
    # What may be replaced was decided before the run began.
    decided: dict[str, Any] = {"overwrite": True, "skip_existing": False, "quiet": True}
    setup = Setup(
        replace(
            session.spec,
            model=session.path.absolute(),
            threads=cluster.threads,
            library=cluster.library,
        ),
        replace(how, mask=None, reference=None, inputs=inputs, **decided),
        file_sha256(session.path),
        session.library is not None,
    )
    with connect(cluster) as ray:
        resources = ray.cluster_resources()
        if resources.get("CPU", 0) < cluster.threads:
            raise NystraError(
                f"a worker needs {cluster.threads} CPUs, and the cluster has "
                f"{resources.get('CPU', 0):g} in all: use fewer `threads`"
            )
        size = cluster.workers or max(int(resources.get("CPU", 1)) // cluster.threads, 1)
        if gpu and cluster.workers is None:
            size = int(resources.get("GPU", 0))
        if size < 1:
            raise NystraError(
                f"the model runs on {session.backend}, and the cluster has no GPU: use `backend` "
                "ort-cpu"
            )
        size = min(size, limit or size)
        pool = Cluster(ray, RemoteWorker, setup, size, threads=cluster.threads, gpu=gpu)
        with closing(pool):
            yield pool
