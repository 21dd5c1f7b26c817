"""A connection to Ray, without Ray: the check of an address, and the settings of workers."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from image_files import make_image
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.runtime import write_image
from nystra.runtime.options import ClusterOptions
from nystra.runtime.pool import ray as ray_pool
from ray_start import set_traps
from runtime_models import nystra_metadata, save_upscaler


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_upscaler(tmp_path / "model.onnx", metadata=nystra_metadata())


@pytest.mark.parametrize("listens", [False, True])
def test_nobody_at_the_address(
    listens: bool,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ray_pool.PATIENCE == 10
    monkeypatch.setattr(ray_pool, "PATIENCE", 0.3)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").touch()
    given = ["run", str(model), "-i", str(tmp_path / "in"), "-o", str(tmp_path / "out")]
    with socket.socket() as probe, socket.socket() as queued:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        if listens:  # and never answers: whoever comes behind the first one waits
            probe.listen(0)
            queued.connect(("127.0.0.1", port))
        begin = time.monotonic()
        assert main([*given, "--ray", f"127.0.0.1:{port}"]) == 3
        assert time.monotonic() - begin < 3
    assert f"no Ray cluster answers at 127.0.0.1:{port}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_cluster_that_does_not_start(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: dict[str, Any] = {}

    def init(**how: Any) -> None:
        asked.update(how)
        asked["files"] = list(Path(how["runtime_env"]["working_dir"]).iterdir())
        raise Exception("The current node timed out during startup.")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    write_image(tmp_path / "a.png", make_image())
    given = ["run", str(model), "-i", str(tmp_path), "-o", str(tmp_path / "out"), "--ray", "local"]
    assert main([*given, "--workers", "3", "--threads", "2"]) == 3
    assert (
        "Ray could not be started on this machine: The current node timed"
        in capsys.readouterr().err
    )
    assert asked["num_cpus"] == 6
    assert asked["address"] == "local", "else Ray joins the cluster that ran here last"
    assert asked["files"] == [], "workers are given an empty folder, else they search this one"
    assert not (tmp_path / "out").exists()


def test_who_asks_an_address_imports_nothing_from_the_present_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules, downloads = tmp_path / "modules", tmp_path / "downloads"
    (modules / "ray").mkdir(parents=True)
    (modules / "ray" / "__init__.py").touch()
    (modules / "ray" / "_raylet.py").write_text("import json, numpy\nGcsClient = dict\n")
    downloads.mkdir()
    set_traps(downloads, tmp_path / "caught")
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.chdir(downloads)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ray_pool._check_answers(ClusterOptions(f"127.0.0.1:{listener.getsockname()[1]}"))
    assert not (tmp_path / "caught").exists()


def test_addresses(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ClusterOptions("10.0.0.1:6379").place == ("10.0.0.1", 6379)
    assert ClusterOptions("[::1]:6379").place == ("::1", 6379)
    for wrong in ("ray://head:10001", "head", "auto", ""):
        with pytest.raises(NystraError, match="expected local or HOST:PORT"):
            ClusterOptions(wrong)
    with pytest.raises(NystraError, match="`workers` is 0"):
        ClusterOptions("local", 0)
    (tmp_path / "in").mkdir()
    given = ["run", str(model), "-i", str(tmp_path / "in"), "-o", str(tmp_path / "out")]
    assert main([*given, "--workers", "2"]) == 2
    assert "--workers goes with --ray" in capsys.readouterr().err
    write_image(tmp_path / "a.png", make_image())
    given[3] = str(tmp_path / "a.png")
    assert main([*given, "--ray", "local"]) == 2
    assert "is one image, and a cluster shares the images of a folder" in capsys.readouterr().err
