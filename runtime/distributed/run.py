"""``nystra run --ray``: the same runs and the same results, on many machines."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...core.arrays import Array
from ...core.errors import NystraError
from ...core.files.reading import file_sha256
from ..options import ClusterOptions
from ..progress import progress_bar
from ..session import Session
from ..tasks.registry import Report
from ..tasks.restoration.auxiliary_roles import AuxiliaryInputs
from ..tasks.restoration.conditions import numbers_or_path
from ..tasks.restoration.options import RunOptions
from ..tasks.restoration.pools import restore_all
from ..tasks.restoration.restorer import RestoredImage, restorer_for
from ..tasks.restoration.result import Done, ImageResult, Pair
from ..tasks.restoration.run import plan_images
from ..tasks.video.frame_restorer import (
    FrameJob,
    FrameRestorer,
    SingleFrameRestorer,
    WindowedRestorer,
)
from ..tasks.video.options import VideoOptions, check_no_video, means_video
from ..tasks.video.run import frame_restorer_for, run_video
from ..tiling.run_tiled import ImageFunction
from ..tiling.tiled_network import TiledNetwork
from ..video.clip import FrameSource
from .cluster import connected
from .worker import Failed, Setup
from .worker_pool import WorkerPool


def distributed_restorer_for(
    pool: WorkerPool,
    session: Session,
    source: FrameSource,
    options: RunOptions,
    video: VideoOptions,
) -> FrameRestorer:
    """Return what restores the frames of a source with all workers.

    For a network of single images each worker gets a frame; for one of several frames the workers
    share the tiles of each window.

    Raises:
        NystraError: As `frame_restorer_for` and `distribute_tiles`.
    """
    restorer = frame_restorer_for(session, source, options, video)
    if isinstance(restorer, WindowedRestorer):
        network = distribute_tiles(restorer.restorer.network, pool)
        return replace(restorer, restorer=replace(restorer.restorer, network=network))
    assert isinstance(restorer, SingleFrameRestorer)  # there are these two
    return replace(restorer, run=partial(_restored, pool))


def _restored(
    pool: WorkerPool, jobs: Iterator[FrameJob]
) -> Iterator[tuple[RestoredImage, float, int]]:
    """Restore frames by the workers, a bounded number at a time."""
    before = time.perf_counter()
    for result in pool.run((("image", job) for job in jobs), ordered=True):
        if isinstance(result.value, Failed):
            raise NystraError(result.value.error)
        now = time.perf_counter()
        yield result.value, now - before, 0
        before = now


def distribute_tiles(network: TiledNetwork, pool: WorkerPool) -> TiledNetwork:
    """Return a network whose tiles are run by the workers, and blended here in their order.

    Each worker runs as many tiles at once as the network would: the results are bit-identical.

    Raises:
        NystraError: The network needs the whole frames, so there are no tiles to distribute.
    """
    if network.whole:
        raise NystraError(
            "the model needs the whole frames, so workers cannot share them: run it "
            "without a cluster"
        )

    def batches(_: ImageFunction, parts: Iterable[list[Array]]) -> Iterator[list[Array]]:
        for result in pool.run((("tiles", (part,)) for part in parts), ordered=True):
            if isinstance(result.value, Failed):
                raise NystraError(result.value.error)
            yield result.value

    return replace(network, batches=batches)


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


def run_distributed(
    session: Session,
    input: str | os.PathLike[str],
    output: str | os.PathLike[str],
    options: RunOptions | None = None,
    video: VideoOptions | None = None,
    *,
    cluster: ClusterOptions,
    report: Report | None = None,
) -> Sequence[ImageResult]:
    """Run a model on a folder or a video, spread over the workers of a cluster.

    Model, inputs and outputs have the same paths on all machines. The outputs are bit-identical to
    those of this session if a tile size is given: an automatic one depends on the memory of each
    machine.

    Args:
        session: The model as it runs here; the workers open the same file.
        input: As in `run_images` or `run_video`.
        output: The same.
        options: The same.
        video: As in `run_video`.
        cluster: Which cluster, and how much of it.
        report: As in `run_images` or `run_video`.

    Returns:
        As `run_images` and `run_video`; for a folder a `DistributedResult` per image.

    Raises:
        NystraError: As they do; also if no worker could open the model, or for one image.
        BackendUnavailableError: Ray is missing, or no cluster answers within ten seconds.
    """
    how, clip = options or RunOptions(), video or VideoOptions()
    open_pool = partial(_worker_pool, session, cluster=cluster)
    if session.facts.input("frames") is not None or means_video(input, output, clip):
        with open_pool(how) as pool:
            open_restorer = partial(distributed_restorer_for, pool)
            return run_video(
                session, input, output, how, video=clip, report=report, open_restorer=open_restorer
            )
    check_no_video(clip)
    pairs, results, folder = plan_images(input, output, how)
    if not folder:
        raise NystraError(
            f"{input} is one image, and a cluster shares the images of a folder or the frames of a "
            "video: run it without a cluster"
        )
    if not pairs:
        return results
    AuxiliaryInputs.match(restorer_for(session).auxiliary, how.auxiliary())
    with (
        open_pool(how, most=len(pairs)) as pool,
        progress_bar(Path(input).name, unit="image", quiet=how.quiet) as move,
    ):
        return [*results, *restore_all(partial(in_cluster, pool=pool), pairs, move, report)]


@contextmanager
def _worker_pool(
    session: Session, how: RunOptions, most: int | None = None, *, cluster: ClusterOptions
) -> Iterator[WorkerPool]:
    """Yield requested workers, which end with the block.

    Args:
        session: The model as it runs here.
        how: Settings of the run.
        most: The largest number of workers with something to do.
        cluster: Which cluster, and how much of it.
    """
    gpu = session.kind.device == "cuda"
    absolute: dict[str, Any] = {
        name: None if getattr(how, name) is None else Path(getattr(how, name)).absolute()
        for name in ("mask", "reference")
    }
    found = {key: numbers_or_path(given) for key, given in (how.inputs or {}).items()}
    absolute["inputs"] = {
        key: given.absolute() if isinstance(given, Path) else given.tolist()
        for key, given in found.items()
    }
    setup = Setup(
        replace(
            session.spec,
            model=session.path.absolute(),
            threads=cluster.threads,
            library=cluster.library,
        ),
        file_sha256(session.path),
        session.library is not None,
        replace(how, **absolute),
    )
    with connected(cluster) as ray:
        there = ray.cluster_resources()
        if there.get("CPU", 0) < cluster.threads:
            raise NystraError(
                f"a worker needs {cluster.threads} CPUs, and the cluster has "
                f"{there.get('CPU', 0):g} in all: use fewer `threads`"
            )
        size = cluster.workers or max(int(there.get("CPU", 1)) // cluster.threads, 1)
        if gpu and cluster.workers is None:
            size = int(there.get("GPU", 0))
        if size < 1:
            raise NystraError(
                f"the model runs on {session.backend}, and the cluster has no GPU: use `backend` "
                "ort-cpu"
            )
        pool = WorkerPool(ray, setup, min(size, most or size), gpu=gpu)
        try:
            yield pool
        finally:
            pool.shutdown()
