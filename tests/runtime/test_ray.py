"""``nystra run --ray`` on a real cluster of three nodes, of which some are lost during the run.

Every good image is equal to the byte to that of a run without Ray.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nystra.cli.main import main
from nystra.core.files.temporary import remove_leftovers
from nystra.runtime import ImageData, RunOptions, Session, run_images, write_image
from nystra.runtime.options import ClusterOptions
from nystra.runtime.tasks.registry import Report
from nystra.runtime.tasks.restoration.run import run_restoration
from nystra.runtime.tasks.video.options import VideoOptions
from nystra.runtime.tasks.video.run import run_video
from ray_start import patiently, set_traps
from runtime_models import nystra_metadata, save_upscaler

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]

IMAGES = 24
QUIET = RunOptions(quiet=True)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    made = Cluster()
    node = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    for fewer in ({"no_monitor": True, "include_log_monitor": False}, {}, {}):
        patiently(made.add_node, wait=False, **node, **fewer)
    made.wait_for_nodes(timeout=180)
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    return Session(save_upscaler(path, metadata=nystra_metadata()), threads=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of 8 and 16 bits, and one invalid file."""
    place = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(3)
    for number in range(IMAGES):
        size = (20 + number, 300 - 3 * number, 3)
        bits, suffix = (16, "tif") if number % 3 == 0 else (8, "png")
        write_image(
            place / f"{number:02d}.{suffix}", ImageData(random.random(size, np.float32), bits=bits)
        )
    (place / "poisoned.png").write_bytes(b"\x89PNG\r\n\x1a\n and nothing behind it")
    return place


@pytest.fixture(scope="module")
def expected(session: Session, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("expected")
    run_images(session, folder, place, QUIET)
    return place


def same(one: Path, other: Path) -> None:
    """Assert that two folders hold the same files, and nothing else."""
    names = sorted(path.name for path in one.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def spread(
    cluster: Any,
    session: Session,
    folder: Path,
    out: Path,
    report: Report | None = None,
    **how: Any,
) -> list[dict[str, Any]]:
    options = RunOptions(quiet=True, **how)
    return run_restoration(
        session,
        folder,
        out,
        options,
        cluster=ClusterOptions(cluster.address),
        report=report,
    )


def test_a_folder_and_how_it_goes_on(
    cluster: Any, session: Session, folder: Path, expected: Path, tmp_path: Path
) -> None:
    def wait(_: dict[str, Any], done: int, __: int) -> None:  # else the first worker does them all
        time.sleep(8.0 if done == 1 else 0.0)

    results = spread(cluster, session, folder, tmp_path, wait)
    failed = [result for result in results if result.status == "failed"]
    assert [Path(result.input).name for result in failed] == ["poisoned.png"]
    assert "is damaged or truncated" in failed[0].error
    assert [result.input for result in results] == sorted(map(str, folder.iterdir()))
    assert len({result.worker for result in results}) > 1
    same(tmp_path, expected)
    for name in ("03.tif", "11.png"):
        (tmp_path / name).unlink()
    again = spread(cluster, session, folder, tmp_path, skip_existing=True)
    assert sum(result.status == "done" for result in again) == 2
    assert sum(result.status == "skipped" for result in again) == IMAGES - 2
    same(tmp_path, expected)


@pytest.mark.parametrize("where", ["local", "cluster"])
def test_no_module_of_the_present_folder_runs(
    where: str,
    request: pytest.FixtureRequest,
    session: Session,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    place = tmp_path / "downloads"
    place.mkdir()
    for number in range(6):
        write_image(place / f"{number}.png", ImageData(np.full((20, 30, 3), 0.5, np.float32)))
    run_images(session, place, tmp_path / "expected", QUIET)
    set_traps(place, tmp_path / "caught")
    address = "local" if where == "local" else request.getfixturevalue("cluster").address
    monkeypatch.chdir(place)

    def wait(_: dict[str, Any], done: int, __: int) -> None:  # else one worker does them all
        time.sleep(8.0 if done == 1 and where == "cluster" else 0.0)

    options = ClusterOptions(address, workers=2 if where == "local" else None)
    results = run_restoration(session, place, tmp_path / "out", QUIET, cluster=options, report=wait)
    assert not (tmp_path / "caught").exists()
    workers = {result.worker for result in results if result.status == "done"}
    assert len(workers) > 1 or where == "local"
    same(tmp_path / "out", tmp_path / "expected")


def test_a_worker_is_killed_and_then_a_node(
    cluster: Any, session: Session, folder: Path, expected: Path, tmp_path: Path
) -> None:
    node = next(iter(cluster.worker_nodes))

    def kill(result: dict[str, Any], done: int, _: int) -> None:
        if done == 4:
            (process,) = re.findall(r"process (\d+)", result.worker)
            os.kill(int(process), signal.SIGKILL)
        elif done == 10:
            cluster.remove_node(node, allow_graceful=False)

    results = spread(cluster, session, folder, tmp_path, kill)
    assert sum(result.status == "done" for result in results) == IMAGES
    assert max(result.tries for result in results) == 2
    remove_leftovers.__wrapped__(tmp_path)  # of the killed: the next process to write does so
    same(tmp_path, expected)


def test_frames_of_a_video(cluster: Any, session: Session, tmp_path: Path) -> None:
    frames = tmp_path / "frames"
    frames.mkdir()
    random = np.random.default_rng(2)
    for number in range(12):
        write_image(frames / f"{number}.png", ImageData(random.random((30, 40, 3), np.float32)))
    video = VideoOptions(video=True)
    run_video(session, frames, tmp_path / "a", QUIET, video=video)
    there = []

    def look(_: dict[str, Any], done: int, __: int) -> None:
        there.append((done, len(list((tmp_path / "b").iterdir()))))

    (result,) = run_restoration(
        session,
        frames,
        tmp_path / "b",
        QUIET,
        cluster=ClusterOptions(cluster.address),
        video=video,
        report=look,
    )
    assert result.frames == 12
    assert there == [(number, number) for number in range(1, 13)]
    same(tmp_path / "a", tmp_path / "b")


def test_a_cluster_that_wants_a_token(
    session: Session,
    folder: Path,
    expected: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("ray.exceptions", reason="the extra ray is not installed")
    if not hasattr(import_module("ray.exceptions"), "AuthenticationError"):
        pytest.skip("this Ray knows no tokens")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = ["--head", "--block", "--num-cpus=1", f"--port={port}", "--include-dashboard=false"]
    knows = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 2}
    head = subprocess.Popen(
        [sys.executable, "-c", "import ray.scripts.scripts as ray; ray.main()", "start", *options],
        env=knows,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    given = ["run", str(session.path), "-i", str(folder), "-o", str(tmp_path), "--ray"]
    given += [f"127.0.0.1:{port}", "--threads", "1"]
    try:
        end = time.monotonic() + 60
        said = ""
        while "requires a token" not in said and time.monotonic() < end:
            assert main(given) == 3
            said = capsys.readouterr().err
        assert (
            "requires a token: on every machine set RAY_AUTH_MODE=token, and put the token of its"
            in said
        )
        assert not list(tmp_path.iterdir())
        program = [sys.executable, "-m", "nystra.cli.main", *given]
        assert subprocess.run(program, env=knows, check=False).returncode == 2, "one is poisoned"
        same(tmp_path, expected)
    finally:
        os.killpg(head.pid, signal.SIGTERM)
        head.wait(60)


def test_what_listens_there_is_no_cluster(
    session: Session, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        begin = time.monotonic()
        given = ["run", str(session.path), "-i", str(folder), "-o", str(tmp_path / "out")]
        assert main([*given, "--ray", address]) == 3
    assert time.monotonic() - begin < 12
    assert "Ray cluster" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
