"""Images one after the other, their files read and written next to the model.

While the model runs, a thread writes the image before and reads the next one. The results of a
folder are the same as without this overlap: an image that shares a file with an earlier one waits
for it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, TypeAlias

from ...machine.memory import available_memory
from .image_job import ImageInput, ImageJob, ImageOutput, LargeImage, Move, failed
from .result import Done, ImageResult, Pair

_MOST = 2 << 30
_SHARE = 8
"""An image with its result takes at most an eighth of the memory, and of 2 GiB, if other images
are read and written at the same time."""


Read: TypeAlias = ImageInput | LargeImage | ImageResult
"""An image that was read, one that is not held, or the result of one that failed."""


def one_by_one(job: ImageJob, pairs: Sequence[Pair], move: Move) -> Generator[Done, None, None]:
    """Restore images, and yield index and result of each, in order, once it is written.

    If one of them fails, the others continue.
    """
    waits = [*shares_files(pairs), True]  # nothing comes after the last one
    quiet = _quiet(job)

    def quietly(step: Callable[..., Any], what: Any) -> Any:
        with quiet:
            return step(job, what)

    ahead: Future[Read] | None = None
    behind: tuple[int, Future[ImageResult]] | None = None
    with ThreadPoolExecutor(1, "nystra-files") as files:
        for index, pair in enumerate(pairs):
            read = _read(job, pair) if ahead is None else ahead.result()
            alone = waits[index + 1] or not _is_small(job, read)
            ahead = None if alone else files.submit(quietly, _read, pairs[index + 1])
            output = _run(job, read, _share(move, index, len(pairs)))
            if behind is not None:
                yield behind[0], behind[1].result()
            behind = index, files.submit(quietly, _write, output)
            if alone:
                yield index, behind[1].result()
                behind = None


class LockedModel:
    """Restores the images of several threads; the files of one are read while another is run.

    One image at a time is read, and one is run. While a large one is restored none is read. The
    images share no files.

    Attributes:
        lock: Held while the model runs, also by other users of the model.
    """

    def __init__(self, job: ImageJob) -> None:
        self._job, self._quiet = job, _quiet(job)
        self._files, self.lock = threading.Lock(), threading.Lock()

    def restore(self, pair: Pair) -> ImageResult:
        """Restore an image; a failure is in its result."""
        with ExitStack() as reading:
            reading.enter_context(self._files)
            with self._quiet:
                read = _read(self._job, pair)
            if _is_small(self._job, read):
                reading.close()
            with self.lock:
                output = _run(self._job, read, lambda done, total: None)
            with self._quiet:
                return _write(self._job, output)


def attempt(job: ImageJob, pair: Pair) -> ImageResult:
    """Restore one image of several; a failure is in its result."""
    return _finish(job, _read(job, pair))


def attempt_small(job: ImageJob, pair: Pair, most: int) -> ImageResult | None:
    """Restore one image as `attempt` does; None if it has more pixels than ``most``."""
    read = _read(job, pair)
    if isinstance(read, LargeImage):
        return None
    if isinstance(read, ImageInput) and math.prod(read.image.size) > most:
        return None
    return _finish(job, read)


def _finish(job: ImageJob, read: Read) -> ImageResult:
    return _write(job, _run(job, read, lambda done, total: None))


def _read(job: ImageJob, pair: Pair) -> Read:
    read: Read = _tried(pair[0], job.read, *pair)
    return read


def _run(job: ImageJob, read: Read, move: Move) -> ImageOutput | ImageResult:
    if isinstance(read, ImageResult):
        return read
    output: ImageOutput | ImageResult = _tried(read.path, job.run, read, move)
    return output


def _write(job: ImageJob, output: ImageOutput | ImageResult) -> ImageResult:
    here = output.input if isinstance(output, ImageResult) else output.source.path
    result: ImageResult = _tried(Path(here), job.write, output)
    return result


def _tried(here: Path, step: Callable[..., Any], *arguments: Any) -> Any:
    """Return the value of a step, or the result of the image if it failed."""
    try:
        return step(*arguments)
    except Exception as error:  # a bad image never stops the others
        return failed(error, here)


def shares_files(pairs: Sequence[Pair]) -> Iterator[bool]:
    """Yield for each pair whether an earlier one writes a file that it reads or writes."""
    written: set[Path] = set()
    for here, there in pairs:
        yield here in written or there in written
        written.add(there)


def _quiet(job: ImageJob) -> AbstractContextManager[Any]:
    """Return the lock of file access, which keeps it out of measurements."""
    meter = job.restorer.meter
    return nullcontext() if meter is None else meter.quiet


def _is_small(job: ImageJob, read: Read) -> bool:
    """Return whether there is memory for other images in addition to this one."""
    if not isinstance(read, ImageInput):
        return isinstance(read, ImageResult)
    restorer = job.restorer
    height, width = read.image.size
    numbers = height * width * (3 + restorer.output_channels * restorer.scale**2)
    return 4 * numbers * _SHARE <= min(job.options.max_memory or available_memory(), _MOST)


def _share(move: Move, index: int, images: int) -> Move:
    """Return a progress function for one of several images, assumed to have equally many tiles."""
    return lambda done, total: move(index * total + done, images * total)
