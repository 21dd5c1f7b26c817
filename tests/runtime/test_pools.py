"""The images of a folder in several processes (``nystra run --jobs``) and in threads."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auxiliary_models import FILLER, hole, make_image, save
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.runtime import ImageData, RunOptions, Session, run_images, write_image
from nystra.runtime.tasks.restoration import folder as folder_module
from nystra.runtime.tasks.restoration.folder import parallel_limit
from nystra.runtime.tasks.restoration.image_job import ImageJob
from nystra.runtime.tasks.restoration.restorer import restorer_for
from nystra.runtime.tasks.restoration.worker import ImageWorker
from nystra.runtime.workers.child import Child
from runtime_models import nystra_metadata, save_upscaler


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_upscaler(tmp_path / "model.onnx", metadata=nystra_metadata())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    for number in range(5):
        values = np.random.default_rng(number).random((20, 30 + number, 3), np.float32)
        write_image(made / f"{number}.png", ImageData(values))
    (made / "bad.png").write_bytes(b"no image")
    write_image(made / "0.tif", ImageData(values))
    return made


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Child]]:
    """The started children; one that gets ``poison.png`` dies."""
    started: list[Child] = []
    start, ask = Child.__init__, Child.ask

    def remembered(self: Child, *args: Any) -> None:
        start(self, *args)
        started.append(self)

    def asked(self: Child, what: str, request: Any = None) -> Any:
        if "poison.png" in str(request):
            os.kill(self._process.pid, signal.SIGKILL)
        return ask(self, what, request)

    monkeypatch.setattr(Child, "__init__", remembered)
    monkeypatch.setattr(Child, "ask", asked)
    yield started
    assert all(child._process.poll() is not None for child in started)


def told(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    times = ("seconds", "model_seconds")
    return [
        {key: value for key, value in result.as_dict().items() if key not in times}
        for result in results
    ]


@pytest.mark.full
def test_processes_do_what_one_does(
    model: Path, folder: Path, tmp_path: Path, children: list[Child]
) -> None:
    out = tmp_path / "out"
    options = RunOptions(format="png", overwrite=True, quiet=True)
    session = Session(model, threads=1)
    alone = run_images(session, folder, out, options)
    written = {path.name: path.read_bytes() for path in out.iterdir()}
    assert len(written) == 5
    assert not children
    write_image(folder / "poison.png", ImageData(np.zeros((9, 9, 3), np.float32)))
    seen: list[tuple[int, int]] = []
    both = RunOptions(format="png", overwrite=True, quiet=True, jobs=2)
    shared = run_images(session, folder, out, both, report=lambda _, *now: seen.append(now))
    poison = next(result for result in shared if "poison" in result.input)
    assert "was ended by SIGKILL" in poison.error
    assert told([result for result in shared if result is not poison]) == told(alone)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == written
    assert seen == [(done, 8) for done in range(1, 9)]
    assert 2 <= len(children) <= 3  # another for the one that died, if there was more to do


@pytest.mark.full
def test_an_interrupt_ends_the_children(
    model: Path, folder: Path, tmp_path: Path, children: list[Child]
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_images(model, folder, tmp_path / "out", RunOptions(jobs=2), report=stop)
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


@pytest.mark.full
def test_a_model_that_a_child_cannot_load(model: Path, folder: Path, tmp_path: Path) -> None:
    session = Session(model)
    model.unlink()
    with pytest.raises(NystraError, match=r"cannot load the model: .* Use fewer `jobs`"):
        run_images(session, folder, tmp_path / "out", RunOptions(jobs=2))


def test_jobs_that_cannot_be(
    model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", str(model), "-i", str(folder), "-o", str(tmp_path / "out")]
    assert main([*arguments, "--jobs", "0"]) == 2
    assert "--jobs is 0, expected a whole number of 1 or more" in capsys.readouterr().err
    assert main([*arguments, "--video", "--jobs", "2"]) == 2
    assert "--jobs does not apply to the frames of one video" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.parametrize("how", [{"mask": "masks"}, {"inputs": {"mask": "masks"}}])
def test_children_are_handed_the_paths_of_further_inputs(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    model = save(tmp_path / "filler.onnx", FILLER.format(c=3, h="h", w="w"), "mask", 3)
    for name in ("a.png", "b.png"):
        for place, pixels in (("in", make_image()), ("masks", hole())):
            (tmp_path / place).mkdir(exist_ok=True)
            write_image(tmp_path / place / name, ImageData(pixels))
    options = RunOptions(
        **{
            key: tmp_path / value
            if isinstance(value, str)
            else {role: tmp_path / name for role, name in value.items()}
            for key, value in how.items()
        },
        jobs=2,
    )
    results = run_images(Session(model), tmp_path / "in", tmp_path / "out", options)
    assert [result.status for result in results] == ["done", "done"]


SMALL = 18


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    return Session(save_upscaler(path, metadata=nystra_metadata()), threads=2)


@pytest.fixture
def small_images(tmp_path: Path) -> Path:
    """Small images, one invalid file, and one large image in a small file."""
    made = tmp_path / "in"
    made.mkdir()
    for number in range(SMALL):
        values = np.random.default_rng(number).random((9 + number, 30, 3), np.float32)
        write_image(made / f"{number:02d}.png", ImageData(values))
    (made / "bad.png").write_bytes(b"no image")
    write_image(made / "large.png", ImageData(np.full((200, 210, 3), 0.25, np.float32)))
    return made


def test_threads_write_what_one_after_the_other_writes(
    session: Session, small_images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    again = RunOptions(quiet=True, overwrite=True)
    seen: list[tuple[int, int]] = []
    threads: set[str] = set()
    small_file = ImageWorker.small_file

    def noted(*given: Any) -> Any:
        threads.add(threading.current_thread().name)
        return small_file(*given)

    monkeypatch.setattr(ImageWorker, "small_file", noted)
    beside = run_images(session, small_images, out, again, report=lambda _, *now: seen.append(now))
    written = {path.name: path.read_bytes() for path in out.iterdir()}
    assert len(written) == SMALL + 1
    assert 1 < len(threads) <= 3
    assert seen == [(done, SMALL + 2) for done in range(1, SMALL + 3)]
    monkeypatch.setattr(folder_module, "parallel_limit", lambda *_: 0)
    assert told(beside) == told(run_images(session, small_images, out, again))
    assert {path.name: path.read_bytes() for path in out.iterdir()} == written
    assert "is not an image in a supported format" in beside[SMALL].error


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
    change: Callable[[Any], Any], session: Session, small_images: Path, tmp_path: Path
) -> None:
    job = ImageJob(restorer_for(session), RunOptions(quiet=True))
    pairs = [(path, tmp_path / "out" / path.name) for path in sorted(small_images.iterdir())]
    assert parallel_limit(job, session, pairs) == 128 * 128
    assert parallel_limit(job, session, change(pairs)) == 0
    alone = Session(session.path, threads=1)
    assert parallel_limit(job, alone, pairs) == 0


def test_memory_bounds_what_is_small(
    session: Session, small_images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "available_memory", lambda: 12 * 40_960 * 1000)
    job = ImageJob(restorer_for(session), RunOptions(quiet=True))
    pairs = [(path, Path("out", path.name)) for path in sorted(small_images.iterdir())]
    assert parallel_limit(job, session, pairs) == 1000


def test_an_interrupt_ends_it(session: Session, small_images: Path, tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_images(session, small_images, tmp_path / "out", RunOptions(quiet=True), report=stop)
    assert not any(thread.name.startswith("nystra-pool") for thread in threading.enumerate())
    assert len(list((tmp_path / "out").iterdir())) < SMALL
