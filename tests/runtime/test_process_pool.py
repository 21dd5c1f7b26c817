"""``nystra run --jobs``: the images of a folder in several processes."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auxiliary_models import FILLER, hole, make_image, save
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.runtime import ImageData, RunOptions, Session, run_images, write_image
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
    assert "--jobs shares the images of a folder" in capsys.readouterr().err


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
