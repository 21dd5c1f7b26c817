"""The conformance host with a device: its kernels run on the block emulator."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import emulated_device
import enqueue_table

TIGHT = "shared=26112,warps=2,blocks=3"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of host and plugins."""
    root = os.environ.get("NYSTRA_TENSORRT10_ROOT")
    if not root:
        pytest.skip("no TensorRT headers here: NYSTRA_TENSORRT10_ROOT is not set")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSORRT_ROOT", root)
        if reason := emulated_device.missing():
            pytest.skip(reason)
        return emulated_device.build(tmp_path_factory.mktemp("emulated"))


def _host(built: Path, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [built / "nystra_trt_host", built / "libnystra_trt.so", *map(str, words)]
    env = {**os.environ, **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("limits", [None, TIGHT])
def test_rows_on_disk_run_and_are_judged(built: Path, tmp_path: Path, limits: str | None) -> None:
    cases, out = tmp_path / "cases", tmp_path / "out"
    out.mkdir()
    enqueue_table.write(cases, enqueue_table.rows(every=4, types=["float16", "float32"]))
    rows = enqueue_table.written(cases)
    environment = {} if limits is None else {"NYSTRA_CUDA_LIMITS": limits}
    done = _host(built, "--enqueue", cases, out, **environment)
    assert done.returncode == 0, done.stdout
    found = enqueue_table.summary([enqueue_table.judge(out, row) for row in rows])
    assert found["rows"] == len(rows) > 15
    assert found["failures"] == []
    assert all(margin <= 1 for margin in found["margins"].values())
    files = sorted(file for file in out.iterdir() if file.name.endswith("float32.out0"))
    wrong = next(file for file in files if np.median(np.abs(np.fromfile(file, np.float32))) > 0.1)
    wrong.write_bytes(bytes(wrong.stat().st_size))
    found = enqueue_table.summary([enqueue_table.judge(out, row) for row in rows])
    assert found["failed"] == 1, "a row that is all zeros must not pass"


def test_times_are_json_and_limits_reach_the_kernels(built: Path, tmp_path: Path) -> None:
    cases = tmp_path / "cases"
    enqueue_table.write_times(cases, small=True)
    text = (cases / "cases.txt").read_text().split("end\n")
    kept = [case for case in text if "float32" in case and "pinv" in case]
    (cases / "cases.txt").write_text("end\n".join([*kept, ""]))
    measured = {}
    for limits in ("shared=49152", TIGHT):
        file = tmp_path / "times.json"
        done = _host(built, "--time", cases, file, "0.01", NYSTRA_CUDA_LIMITS=limits)
        assert done.returncode == 0, done.stdout
        measured[limits] = json.loads(file.read_text())
    for row in measured["shared=49152"]:
        assert len(row["ms"]) >= 3
        assert min(row["ms"]) > 0
        assert row["bytes"] > 0
        assert row["sets"] > 1
    sizes = {limits: [row["workspace"] for row in rows] for limits, rows in measured.items()}
    assert sizes["shared=49152"] != sizes[TIGHT]


@pytest.mark.parametrize("limits", ["shared", "warps=3", "blocks=0", "other=1", "shared=4k"])
def test_limits_that_are_none_are_refused(built: Path, tmp_path: Path, limits: str) -> None:
    cases = tmp_path / "cases"
    enqueue_table.write(cases, enqueue_table.rows(every=20, types=["float32"])[:1])
    done = _host(built, "--enqueue", cases, tmp_path, NYSTRA_CUDA_LIMITS=limits)
    assert "NYSTRA_CUDA_LIMITS is" in done.stdout + done.stderr
