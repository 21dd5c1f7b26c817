"""Small images of a folder in parallel threads, as ``nystra run`` restores many of them."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nystra.runtime import ImageData, RunOptions, Session, run_images, write_image
from nystra.runtime.tasks.restoration import thread_pool
from nystra.runtime.tasks.restoration.image_job import ImageJob
from nystra.runtime.tasks.restoration.session_restorer import restorer_for
from nystra.runtime.tasks.restoration.thread_pool import most_pixels
from runtime_models import nystra_metadata, save_upscaler

COUNT = 18
QUIET = RunOptions(quiet=True)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    return Session(save_upscaler(path, metadata=nystra_metadata()), threads=2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Small images, one invalid file, and one large image in a small file."""
    made = tmp_path / "in"
    made.mkdir()
    for number in range(COUNT):
        values = np.random.default_rng(number).random((9 + number, 30, 3), np.float32)
        write_image(made / f"{number:02d}.png", ImageData(values))
    (made / "bad.png").write_bytes(b"no image")
    write_image(made / "large.png", ImageData(np.full((200, 210, 3), 0.25, np.float32)))
    return made


def told(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    times = ("seconds", "model_seconds")
    return [
        {key: value for key, value in one.as_dict().items() if key not in times} for one in results
    ]


def test_threads_write_what_one_after_the_other_writes(
    session: Session, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    again = RunOptions(quiet=True, overwrite=True)
    seen: list[tuple[int, int]] = []
    threads: set[str] = set()
    attempt = thread_pool.attempt_small

    def noted(*given: Any) -> Any:
        threads.add(threading.current_thread().name)
        return attempt(*given)

    monkeypatch.setattr(thread_pool, "attempt_small", noted)
    beside = run_images(session, folder, out, again, report=lambda _, *now: seen.append(now))
    written = {path.name: path.read_bytes() for path in out.iterdir()}
    assert len(written) == COUNT + 1
    assert 1 < len(threads) <= 3
    assert seen == [(done, COUNT + 2) for done in range(1, COUNT + 3)]
    monkeypatch.setattr("nystra.runtime.tasks.restoration.folder.most_pixels", lambda *_: 0)
    assert told(beside) == told(run_images(session, folder, out, again))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == written
    assert "is not an image in a supported format" in beside[COUNT].error


def few(pairs: list[tuple[Path, Path]]) -> list[tuple[Path, Path]]:
    return pairs[:15]


def one_file_twice(pairs: list[tuple[Path, Path]]) -> list[tuple[Path, Path]]:
    return [*pairs, (pairs[0][1], pairs[0][1].with_name("other.png"))]


def one_large_file(pairs: list[tuple[Path, Path]]) -> list[tuple[Path, Path]]:
    noise = np.random.default_rng(0).random((200, 200, 3), np.float32)
    write_image(pairs[0][0], ImageData(noise), overwrite=True)
    return pairs


@pytest.mark.parametrize("change", [few, one_file_twice, one_large_file])
def test_when_one_comes_after_the_other(
    change: Callable[[Any], Any], session: Session, folder: Path, tmp_path: Path
) -> None:
    job = ImageJob(restorer_for(session), QUIET)
    pairs = [(path, tmp_path / "out" / path.name) for path in sorted(folder.iterdir())]
    assert most_pixels(job, session, pairs) == 128 * 128
    assert most_pixels(job, session, change(pairs)) == 0
    alone = Session(session.path, threads=1)
    assert most_pixels(job, alone, pairs) == 0


def test_memory_bounds_what_is_small(
    session: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_pool, "available_memory", lambda: 12 * 40_960 * 1000)
    job = ImageJob(restorer_for(session), QUIET)
    pairs = [(path, Path("out", path.name)) for path in sorted(folder.iterdir())]
    assert most_pixels(job, session, pairs) == 1000


def test_an_interrupt_ends_it(session: Session, folder: Path, tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_images(session, folder, tmp_path / "out", QUIET, report=stop)
    assert not any(thread.name.startswith("nystra-image") for thread in threading.enumerate())
    assert len(list((tmp_path / "out").iterdir())) < COUNT
