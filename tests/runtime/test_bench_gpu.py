"""Times and memory of a benchmark on a GPU, without one."""

import re
from pathlib import Path

import pytest

from benchmark_worker import worker
from fake_cuda import FakeCuda
from nystra.cli.commands.bench import _print
from nystra.core.ports.port import image_size
from nystra.runtime.machine import cuda as _cuda
from nystra.runtime.machine import gpu as device_memory
from nystra.runtime.timing.bench import Configuration, bench

GPU = {"threads": None, "gpu": "Test GPU"}


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
    library = FakeCuda()
    driver = _cuda.Driver(lambda _name: library)
    kept = driver.allocate(1000)
    monkeypatch.setattr(device_memory, "Driver", lambda: driver)
    memory = device_memory.DeviceMemory.start()
    assert memory is not None
    assert memory.above == 0
    driver.allocate(5000)
    assert memory.above == 5000
    driver.free(kept)
    assert memory.above == 4000
    library.fails["cuMemGetInfo_v2"] = 2
    assert device_memory.DeviceMemory.start() is None
