"""Times and memory of a benchmark on a GPU, without one."""

import ctypes
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmark_worker import worker
from nystra.cli.commands.bench import _print
from nystra.core.ports.port import image_size
from nystra.runtime.machine.gpu import DeviceMemory
from nystra.runtime.timing.bench import Configuration, bench

GPU = {"threads": None, "gpu": "Test GPU"}


@pytest.mark.full
def test_memory_of_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = worker(tmp_path, monkeypatch, "Counted.total += 1 << 20")
    module = tmp_path / "odd_worker.py"
    fake = (
        "import nystra.runtime.timing.worker as bench_worker\n"
        "class Counted:\n"
        "    total = 0\n"
        "    start = classmethod(lambda cls: cls())\n"
        "    above = property(lambda self: Counted.total)\n"
        "bench_worker.DeviceMemory = Counted\n"
    )
    module.write_text(fake + module.read_text())
    asked = Configuration("m.onnx", "a-gpu", name, {"device": True})
    rows = bench(
        [asked, Configuration("m.onnx", "a-cpu", name)], [image_size(4, 4)], seconds=9.0, runs=5
    )
    assert [row.device_memory for row in rows] == [2 << 20, None], "taken after the warm-up"
    _print(rows, {"cpu": "x", "usable_cores": 1, "cores": 1, "onnxruntime": "1", **GPU}, False)
    head, first, second, *_, line, _ = capsys.readouterr().out.splitlines()
    assert "GPU memory" in head
    assert "2 MiB" in first
    assert line.endswith("Test GPU")
    assert len({len(re.split(" {2,}", row)) for row in (head, first, second)}) == 1, (
        "cells of a row"
    )


@pytest.mark.full
def test_time_on_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = worker(tmp_path, monkeypatch, "time.sleep(0.01)")
    module = tmp_path / "gpu_worker.py"
    module.write_text(
        (tmp_path / "odd_worker.py").read_text().replace("Opened(run)", "Opened(run, device)")
        .replace("sys.exit", "turns = iter([9, 9, .5, .25, .75])\n"
                 "def device(feeds):\n    return next(turns)\nsys.exit")
    )  # fmt: skip
    configurations = [
        Configuration("m.onnx", "a-gpu", "gpu_worker"),
        Configuration("m.onnx", "a-cpu", name),
    ]
    rows = bench(configurations, [image_size(4, 4)], seconds=9.0, runs=3)
    assert rows[0].device_times == [0.5, 0.25, 0.75], "the warm-up is left out"
    assert rows[1].device_times == []
    assert [row.as_dict()["device_p50"] for row in rows] == [0.5, None]
    assert rows[0].percentile(50) < 0.25, "the run itself is timed apart"
    _print(rows, {"cpu": "x", "usable_cores": 1, "cores": 1, "onnxruntime": "1", **GPU}, False)
    table = [re.split(" {2,}", line) for line in capsys.readouterr().out.splitlines()[:3]]
    column = table[0].index("GPU p50")
    assert [row[column] for row in table[1:]] == ["500.0 ms", "-"]
    assert len({len(row) for row in table}) == 1


def test_device_memory_counts_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    free, status = [1 << 30], [0]

    def information(left: Any, total: Any) -> int:
        left._obj.value, total._obj.value = free[0], 1 << 31
        return status[0]

    def count(number: Any) -> int:
        number._obj.value = 1
        return 0

    driver = SimpleNamespace(
        cuInit=lambda _flags: 0,
        cuDeviceGetCount=count,
        cuDevicePrimaryCtxRetain=lambda _context, _device: 0,
        cuCtxSetCurrent=lambda _context: 0,
        cuMemGetInfo_v2=information,
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: driver)
    memory = DeviceMemory.start()
    assert memory is not None
    assert memory.above == 0
    free[0] -= 5000
    assert memory.above == 5000
    free[0] += 9000
    assert memory.above == 0
    status[0] = 2
    assert DeviceMemory.start() is None
