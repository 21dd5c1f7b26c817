"""An application of Ray Serve in a real cluster of one node responds like ``nystra serve``."""

from __future__ import annotations

import gc
import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nystra.core.errors import BackendUnavailableError, NystraError
from nystra.deploy import ray_serve
from nystra.deploy.ray_application import _connect
from nystra.runtime import ImageData, RunOptions, run_images, write_image
from ray_start import patiently, set_traps
from runtime_models import nystra_metadata, save_upscaler

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "double.onnx"
    return save_upscaler(path, metadata=nystra_metadata())


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The current folder of the program that starts the service, with modules that must not run."""
    folder = tmp_path_factory.mktemp("service") / "downloads"
    folder.mkdir()
    set_traps(folder, folder.parent / "caught")
    return folder


@pytest.fixture(scope="module")
def address(
    model: Path, downloads: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    ray = pytest.importorskip("ray", reason="the extra ray-serve is not installed")
    serve = pytest.importorskip("ray.serve", reason="the extra ray-serve is not installed")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "60"  # 5 s are few on a busy machine
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    here = Path.cwd()
    os.chdir(downloads)
    start: dict[str, Any] = {
        "address": "local",
        "num_cpus": 2,
        "include_dashboard": False,
        "object_store_memory": 80 << 20,
        "logging_level": "ERROR",
        "log_to_driver": False,
    }
    patiently(ray.init, **start)
    with pytest.raises(NystraError, match="workers import modules from the current folder"):
        ray_serve(model)
    ray.shutdown()
    empty = tmp_path_factory.mktemp("empty")
    patiently(ray.init, runtime_env={"working_dir": str(empty)}, **start)
    patiently(serve.start, http_options={"host": "127.0.0.1", "port": port})
    serve.run(ray_serve(model, replicas=(1, 2), token="secret"), route_prefix="/")
    os.chdir(here)
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    ray.shutdown()
    gc.collect()  # what Ray left open is not said of a later test


def asked(address: str, path: str, data: bytes | None = None, token: str = "secret") -> bytes:
    headers = {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(address + path, data, headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        content: bytes = answer.read()
        return content


@pytest.mark.full
def test_answers_are_the_files_of_nystra_run(
    address: str, model: Path, downloads: Path, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    (tmp_path / "in").mkdir()
    for number in range(4):
        pixels = random.random((60 + number, 50, 3), np.float32)
        write_image(tmp_path / "in" / f"{number}.png", ImageData(pixels, bits=16))
    run_images(model, tmp_path / "in", tmp_path / "out", RunOptions(tile=32, quiet=True))
    files = sorted((tmp_path / "in").iterdir())

    def right(place: int) -> bool:
        file = files[place % len(files)]
        got = asked(address, "/v1/restore?tile=32", file.read_bytes())
        return got == (tmp_path / "out" / file.name).read_bytes()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(right, range(24)))
    for data, token, status in ((b"no image", "secret", 400), (b"", "guess", 401)):
        with pytest.raises(urllib.error.HTTPError) as refused:
            asked(address, "/v1/restore", data, token)
        with refused.value as answer:
            assert answer.code == status
    assert b"nystra_run_images_count" in asked(address, "/metrics")
    assert right(0)
    assert not (downloads.parent / "caught").exists()


def test_a_program_that_is_not_connected(
    model: Path, downloads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray is started with an empty working folder, not the current one."""
    given: dict[str, Any] = {}

    def init(**how: Any) -> None:
        folder = Path(how["runtime_env"]["working_dir"])
        given.update(how, there=folder.is_dir(), holds=list(folder.iterdir()))

    monkeypatch.chdir(downloads)
    _connect(SimpleNamespace(is_initialized=lambda: False, init=init))
    assert given["there"]
    assert given["holds"] == []
    assert given["namespace"] == "serve"


def test_what_cannot_be_served(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NystraError, match=r"no model file at .*none\.onnx"):
        ray_serve(tmp_path / "none.onnx")
    for replicas in ((2, 1), (0, 0), (-1, 1)):
        with pytest.raises(NystraError, match="expected 0 or more"):
            ray_serve(model, replicas=replicas)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(BackendUnavailableError, match=r"pip install .*'ray\[serve\]>="):
        ray_serve(model)
