"""``nystra run --ray`` without Ray: the assignment of work, and its repetition after a death."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from image_files import make_image
from nystra.core.errors import NystraError
from nystra.runtime import RunOptions, Session, run_images, write_image
from nystra.runtime.options import ClusterOptions
from nystra.runtime.pool import ray as ray_pool
from nystra.runtime.pool.calls import Failed
from nystra.runtime.pool.ray import MAX_TRIES, Cluster
from nystra.runtime.session_spec import SessionSpec
from nystra.runtime.tasks.restoration import on_cluster
from nystra.runtime.tasks.restoration.remote_worker import RemoteWorker, Setup
from nystra.runtime.tasks.restoration.restorer import Restorer, restorer_for
from nystra.runtime.tasks.restoration.run import run_restoration
from nystra.runtime.tasks.video.frame_restorer import share_tiles
from nystra.runtime.tasks.video.options import VideoOptions
from nystra.runtime.tasks.video.run import run_video
from runtime_models import nystra_metadata, save_upscaler


class RayError(Exception):
    """An error of the cluster."""


class RayTaskError(RayError):
    """A method that raised."""

    cause = ValueError("a method raised")


class FakeRay:
    """As much of Ray as a `Cluster` uses; one thing happens in each wait.

    Attributes:
        room: How many of them can be at the same time; others stay about to start.
        most: Most things that were under way at the same time.
    """

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, room: int = 99) -> None:
        self.room, self.most = room, 0
        self.alive: list[Any] = []
        self.waiting: list[Any] = []

    def put(self, value: Any) -> Any:
        return value

    def remote(self, kind: type[Any]) -> Any:
        start = SimpleNamespace(remote=lambda setup: _Actor(self, kind(setup)))
        return SimpleNamespace(options=lambda **how: start)

    def wait(self, references: list[Any], num_returns: int, timeout: float) -> Any:
        self.most = max(self.most, len(self.waiting))
        for reference in references:
            actor = reference.actor
            if actor in self.alive or len(self.alive) < self.room:
                if actor not in self.alive:
                    self.alive.append(actor)
                return [reference], []
        return [], references

    def get(self, reference: Any) -> Any:
        if reference in self.waiting:
            self.waiting.remove(reference)
        return reference.call()

    def kill(self, actor: Any) -> None:
        if actor in self.alive:
            self.alive.remove(actor)

    def available_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}


class _Actor:
    def __init__(self, ray: FakeRay, worker: Any) -> None:
        self._ray, self._worker = ray, worker

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> Any:
            method: Callable[..., Any] = getattr(self._worker, name)
            reference = _Reference(self, lambda: method(*arguments))
            self._ray.waiting.append(reference)
            return reference

        return SimpleNamespace(remote=remote)


class _Reference:
    def __init__(self, actor: _Actor, call: Callable[[], Any]) -> None:
        self.actor, self.call = actor, call


class Doubler:
    """Doubles numbers; 13 kills it, 7 kills it once, and 5 makes its method raise."""

    seven = 0

    def __init__(self, setup: Any) -> None:
        del setup

    def open(self) -> str:
        return "here"

    def double(self, number: int) -> int:
        if number == 7:
            Doubler.seven += 1
        if number == 13 or (number == 7 and Doubler.seven == 1):
            raise RayError("the process is gone")
        if number == 5:
            raise RayTaskError
        return 2 * number


def worker_pool(kind: type[Any], size: int, room: int = 99) -> tuple[Cluster, FakeRay]:
    ray = FakeRay(room)
    return Cluster(ray, kind, None, size, threads=1), ray


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_what_a_worker_died_over_goes_to_another_one(ordered: bool, size: int) -> None:
    Doubler.seven = 0
    pool, ray = worker_pool(Doubler, size)
    outcomes = list(pool.run((("double", (number,)) for number in range(20)), ordered=ordered))
    places = [outcome.place for outcome in outcomes]
    assert sorted(places) == list(range(20))
    assert not ordered or places == sorted(places)
    by_place = {outcome.place: outcome for outcome in outcomes}
    for number in set(range(20)) - {5, 13}:
        assert by_place[number].value == 2 * number
    assert by_place[5].value == Failed("a method raised")
    assert by_place[13].value == Failed(
        f"{MAX_TRIES} workers died during this call, the last one on here"
    )
    assert by_place[7].tries == 2
    innocent = set(range(20)) - {13}
    assert max(by_place[number].tries for number in innocent) == 2, "alone none of them died again"
    assert pool.lost == MAX_TRIES + 1
    assert ray.most <= 3 * size + MAX_TRIES
    pool.close()
    assert ray.alive == []


def test_tasks_are_taken_as_there_is_room() -> None:
    taken = []

    def tasks() -> Any:
        for number in range(1000):
            taken.append(number)
            yield "double", (2 * number + 101,)

    pool, _ = worker_pool(Doubler, 2)
    outcomes = pool.run(tasks(), ordered=True)
    next(outcomes)
    assert len(taken) <= 3 * 2 + 1


def test_no_more_workers_than_there_is_room_for() -> None:
    pool, ray = worker_pool(Doubler, 5, room=1)
    got = [outcome.value for outcome in pool.run(("double", (number,)) for number in (1, 2, 3))]
    assert got == [2, 4, 6]
    assert len(ray.alive) == 1


class Lame(Doubler):
    """Cannot open the model."""

    def open(self) -> Any:
        return Failed("a machine: no such file")


class Stillborn(Doubler):
    """Dies while it opens the model."""

    def open(self) -> str:
        raise RayError("out of memory")


@pytest.mark.parametrize(
    ("kind", "room", "message"),
    [
        (Lame, 9, "no worker could load the model. a machine: no such file"),
        (Stillborn, 9, "the workers die while loading the model: their machines may lack memory"),
        (Doubler, 0, "no worker could start in .* each needs 1 CPUs, and the cluster has"),
    ],
)
def test_no_worker_at_all(
    kind: type[Any], room: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_pool, "_PATIENCE", -1.0)
    pool, _ = worker_pool(kind, 2, room)
    with pytest.raises(NystraError, match=message):
        list(pool.run([("double", (1,))]))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_upscaler(tmp_path / "model.onnx", metadata=nystra_metadata())


def setup(model: Path, **changes: Any) -> Setup:
    from nystra.core.files.reading import file_sha256

    values = {
        "session": SessionSpec(model, "ort-cpu", threads=1),
        "sha256": file_sha256(model),
        "kernels": False,
        "options": RunOptions(),
    }
    return Setup(**{**values, **changes})


def test_a_worker_refuses_another_model(model: Path) -> None:
    failed = RemoteWorker(setup(model, sha256="0" * 64)).open()
    assert isinstance(failed, Failed)
    assert (
        "is a different file on this machine: copy the same file to every machine" in failed.error
    )
    failed = RemoteWorker(setup(model, kernels=True)).open()
    assert isinstance(failed, Failed)
    assert "unlike on the machine that started the run" in failed.error


def test_a_worker_lives_on(model: Path, tmp_path: Path) -> None:
    worker = RemoteWorker(setup(model))
    assert "process" in str(worker.open())
    failed = worker.file(str(tmp_path / "none.png"), str(tmp_path / "out.png"))
    assert failed.status == "failed"
    assert "No such file" in failed.error
    assert isinstance(worker.tiles([np.zeros((1, 9, 4, 4), np.float32)]), Failed)
    result = worker.image(make_image(), "a", {"tile": 0})
    assert not isinstance(result, Failed)
    assert result.image.size == (16, 18)


@pytest.mark.parametrize("batch", ["batch", 2])
def test_tiles_of_a_window(tmp_path: Path, batch: int | str) -> None:
    model = save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata(), batch=batch)
    session = Session(model, threads=1)

    class Here(RemoteWorker):
        def __init__(self, _: Any) -> None:
            super().__init__(setup(model))

    pool, _ = worker_pool(Here, 2)
    whole, spread = restorer_for(session), share_tiles(restorer_for(session), pool)
    pixels = np.random.default_rng(0).random((50, 70, 3), np.float32)
    for image in (pixels, pixels[:, :, :1]):
        expected, tiles = whole(image, 16, 8)
        got, count = spread(image, 16, 8)
        np.testing.assert_array_equal(got, expected)
        assert tiles == count > 20
    internal = Restorer(session, tiling="internal")
    with pytest.raises(NystraError, match="cannot share them: run it without"):
        share_tiles(internal, pool)


def local_ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """Let a distributed run find a Ray of two CPUs, and return it."""
    ray = FakeRay()
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0}, raising=False)
    monkeypatch.setattr(on_cluster, "connect", lambda _: nullcontext(ray))
    return ray


def test_a_folder_is_shared_as_by_one_process(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = local_ray(monkeypatch)
    (tmp_path / "in").mkdir()
    for name in ("a.jpg", "a.png", "b.png"):
        write_image(tmp_path / "in" / name, make_image())
    (tmp_path / "in" / "bad.png").write_bytes(b"no image")
    options, seen = RunOptions(format="png", quiet=True), []
    session = Session(model, threads=1)
    shared = run_restoration(
        session,
        tmp_path / "in",
        tmp_path / "there",
        options,
        cluster=ClusterOptions("local"),
        report=lambda _, *now: seen.append(now),
    )
    alone = run_images(session, tmp_path / "in", tmp_path / "here", options)
    assert [result.status for result in shared] == ["done", "failed", "done", "failed"]
    assert [result.error and result.error.replace("there", "here") for result in shared] == [
        result.error for result in alone
    ]
    assert seen == [(done, 4) for done in range(1, 5)]
    for name in ("a.png", "b.png"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    assert ray.alive == []


def test_frames_are_shared_as_by_one_process(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = local_ray(monkeypatch)
    (tmp_path / "in").mkdir()
    for number in range(5):
        image = make_image()
        write_image(tmp_path / "in" / f"{number}.png", replace(image, pixels=image.pixels / 2))
    session, video, quiet = Session(model, threads=1), VideoOptions(video=True), RunOptions()
    options = RunOptions(overwrite=True, quiet=True)
    paths = tmp_path / "in", tmp_path / "there"
    cluster = ClusterOptions("local")
    (result,) = run_restoration(session, *paths, options, video, cluster=cluster)
    assert (result.frames, result.tiles) == (5, 5)
    run_video(session, tmp_path / "in", tmp_path / "here", quiet, video)
    for name in ("0.png", "1.png", "2.png", "3.png", "4.png"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    (tmp_path / "in" / "3.png").write_bytes(b"no image")
    with pytest.raises(NystraError, match="is not an image in a supported format"):
        run_restoration(session, *paths, options, video, cluster=cluster)
    assert ray.alive == []


def test_a_worker_without_memory_says_so_and_lives_on(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = RemoteWorker(setup(model, options=RunOptions(max_memory=1 << 20)))
    assert "process" in str(worker.open())
    write_image(tmp_path / "a.png", make_image())
    paths = str(tmp_path / "a.png"), str(tmp_path / "out.png")
    failed = worker.file(*paths)
    assert failed.status == "failed"
    assert "with the model loaded, and the limit is 1 MiB" in failed.error
    worker = RemoteWorker(setup(model))
    worker.open()

    def exhausted(*_: Any, **__: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(Restorer, "__call__", exhausted)
        failed = worker.file(*paths)
    assert failed.status == "failed"
    assert "not enough memory for" in failed.error
    assert not (tmp_path / "out.png").exists()
    assert worker.file(*paths).status == "done"
