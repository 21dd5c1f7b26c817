"""Files are read and written while the model runs for others."""

import threading
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nystra.runtime import ImageData
from nystra.runtime.pool.local import Threads
from nystra.runtime.tasks.restoration import worker as worker_module
from nystra.runtime.tasks.restoration.folder import groups_apart, restore_all, restore_files
from nystra.runtime.tasks.restoration.result import ImageResult
from nystra.runtime.tasks.restoration.worker import ImageWorker

SECONDS = 5.0
"""After which something that should happen beside something else did not."""

SMALL = ImageData(np.zeros((4, 5, 3), np.float32))


class Job:
    """Records the steps; a step fails for an image that is named after it."""

    def __init__(self, image: ImageData = SMALL, max_memory: int | None = None) -> None:
        self.image = image
        self.options = SimpleNamespace(max_memory=max_memory)
        self.restorer = SimpleNamespace(meter=None, output_channels=3, scale=2)
        self.done: list[str] = []

    def _do(self, step: str, here: Path) -> None:
        self.done.append(f"{step} {here.stem}")
        if here.stem.startswith(step):
            raise ValueError(f"{step} went wrong")

    def of(self, here: Path, there: Path) -> Any:
        def write() -> ImageResult:
            self._do("write", here)
            return ImageResult(str(here), output=str(there))

        def run(move: Any) -> None:
            self._do("run", here)
            move(1, 1)

        return SimpleNamespace(
            image=self.image, read=lambda: self._do("read", here), run=run, write=write
        )


def pairs(*names: str) -> list[tuple[Path, Path]]:
    return [(Path("in", name), Path("out", name)) for name in names]


def ran(job: Any, given: list[tuple[Path, Path]]) -> list[ImageResult]:
    worker, moved, told = ImageWorker(job, lambda *now: moved.append(now), len(given)), [], []
    with closing(Threads(worker.call, 2, worker.stop)) as pool:
        restore = partial(restore_files, pool, ordered=True)
        results = restore_all(restore, given, None, lambda result, *_: told.append(result))
    assert told == results
    assert all(total == len(given) for _, total in moved)
    return results


class Overlapping(Job):
    """Its model waits until another image was read and all results so far were written."""

    def __init__(self, images: int) -> None:
        super().__init__()
        self._images, self._changed = images, threading.Condition()

    def _do(self, step: str, here: Path) -> None:
        with self._changed:
            super()._do(step, here)
            self._changed.notify_all()
            if step == "run":
                assert self._changed.wait_for(self._others_are_done, SECONDS)

    def _others_are_done(self) -> bool:
        read, run, written = (sum(each.startswith(step) for each in self.done) for step in WAYS)
        return written == run - 1 and read == min(run + 1, self._images)


WAYS = ("read", "run", "write")


def test_files_are_read_and_written_while_the_model_runs() -> None:
    job = Overlapping(4)
    assert [result.error for result in ran(job, pairs(*"abcd"))] == [None] * 4


def test_one_bad_image_stops_no_other() -> None:
    names = ("a", "read1", "read2", "b", "run", "write", "c")
    job = Job()
    results = ran(job, pairs(*names))
    failed = [name for name, result in zip(names, results, strict=True) if result.error]
    assert failed == ["read1", "read2", "run", "write"]
    assert "in/run cannot be restored: run went wrong" in results[4].error


def test_an_image_that_shares_a_file_with_another_one_waits() -> None:
    job = Job()
    given = [
        (Path("in/a"), Path("out/x")),
        (Path("out/x"), Path("out/y")),  # what the first one writes
        (Path("in/c"), Path("out/c")),
    ]
    results = ran(job, given)
    assert [result.status for result in results] == ["done"] * 3
    assert job.done.index("write a") < job.done.index("read x")
    written_later = [*given, (Path("in/d"), Path("in/c"))]
    assert [len(group) for group in groups_apart(written_later)] == [1, 2, 1]


@pytest.mark.parametrize("max_memory", [None, 8 * 4 * 15 * 20 - 1])
def test_nothing_is_held_beside_a_large_image(
    max_memory: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if max_memory is None:
        monkeypatch.setattr(worker_module, "available_memory", lambda: 8 * 4 * 15 * 20 - 1)
    job = Job(max_memory=max_memory)
    ran(job, pairs(*"ab"))
    assert job.done in [
        [f"{step} {name}" for name in names for step in WAYS] for names in ("ab", "ba")
    ]


def test_nothing_is_read_while_the_memory_is_measured() -> None:
    quiet = threading.Lock()

    class Measured(Job):
        def _do(self, step: str, here: Path) -> None:
            super()._do(step, here)
            if step == "run":
                with quiet:
                    held = len(self.done)
                    assert not threading.Event().wait(0.02)
                    assert len(self.done) == held

    job = Measured()
    job.restorer.meter = SimpleNamespace(quiet=quiet)
    assert [result.status for result in ran(job, pairs(*"abc"))] == ["done"] * 3
