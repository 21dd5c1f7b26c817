"""The TensorRT backend's own steps, with a driver and an engine of the test: no GPU is involved.

That a real engine runs is not shown here; it is listed in docs/gpu.md among what only a GPU shows.
"""

from __future__ import annotations

import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fake_cuda import FakeContext, FakeCuda, FakeEngine
from nystra.core.errors import BackendUnavailableError, NystraError
from nystra.runtime import Session
from nystra.runtime.backends import tensorrt as backend
from nystra.runtime.engines import cache, toolkit
from nystra.runtime.engines.building import configure
from nystra.runtime.engines.model import EngineModel
from nystra.runtime.engines.record import EngineRecord
from nystra.runtime.machine import cuda as _cuda
from nystra.runtime.machine import gpu
from runtime_models import save_upscaler

DEVICE = gpu.Device("Test GPU", "sm89", 13)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCuda:
    """A fake GPU machine."""
    library = FakeCuda()

    class Logger:
        WARNING = 1

        def __init__(self, _severity: int) -> None:
            pass

    runtime = SimpleNamespace(
        deserialize_cuda_engine=lambda data: FakeEngine(library) if data else None
    )
    module = SimpleNamespace(
        Logger=Logger,
        Runtime=lambda _logger: runtime,
        TensorIOMode=SimpleNamespace(INPUT="input"),
    )
    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(toolkit, "installed", lambda _name: True)
    monkeypatch.setattr(gpu, "find_device", lambda: DEVICE)
    monkeypatch.setattr(toolkit, "load", lambda name: toolkit.Toolkit(name, module, "11.2"))
    monkeypatch.setattr(backend, "Driver", lambda: _cuda.Driver(lambda _name: library))
    return library


def session(tmp_path: Path, **changes: Any) -> Session:
    """A session on an engine from the cache."""
    model = EngineModel.open(save_upscaler(tmp_path / "m.onnx"))
    profile = {"input": ((1, 3, 1, 1), (1, 3, 8, 8), (1, 3, 16, 16))}
    fields = {"profile": profile, **BUILT, **changes}
    record = EngineRecord(hashes=model.hashes(), **fields)
    (tmp_path / "engine").write_bytes(b"engine")
    cache.store(record, tmp_path / "engine")
    return Session(model.path, backend=fields["backend"])


BUILT: dict[str, Any] = {
    "backend": "tensorrt",
    "version": "11.2",
    "device": {"name": "Test GPU", "capability": "sm89", "cuda": 13},
    "flags": list(toolkit.FLAGS),
}
"""How the engines of these tests were built."""


def test_runs_at_growing_and_shrinking_sizes(driver: FakeCuda, tmp_path: Path) -> None:
    loaded = session(tmp_path)
    assert loaded.inputs[0].shape == (None, 3, None, None)
    for height, width in ((4, 6), (16, 9), (1, 1), (16, 9)):
        image = np.random.default_rng(0).random((1, 3, height, width), dtype=np.float32)
        np.testing.assert_array_equal(loaded(image), image.repeat(2, 2).repeat(2, 3))
    assert len(driver.memory) == 4  # two tensors, on the device and page-locked
    assert driver.calls.count("cuMemAlloc_v2") == 4  # two sizes grew, none shrank


PLAIN = ["cuMemcpyHtoDAsync_v2", "enqueue", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"]
RECORDING = [
    "cuStreamBeginCapture_v2",
    "enqueue",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphDestroy",
]
REPLAYED = [PLAIN[0], "cuGraphLaunch", *PLAIN[2:]]
RECORDED = [PLAIN[0], *RECORDING, *REPLAYED[1:]]


def make_image(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((1, 3, height, width), dtype=np.float32)


def run(driver: FakeCuda, loaded: Session, image: np.ndarray) -> list[str]:
    """Run and check one image; return the calls except allocations."""
    mark = len(driver.calls)
    np.testing.assert_array_equal(loaded(image), image.repeat(2, 2).repeat(2, 3))
    memory = ("cuMemAlloc_v2", "cuMemHostAlloc", "cuMemFree_v2", "cuMemFreeHost")
    return [name for name in driver.since(mark) if name not in memory]


def test_the_second_run_of_a_shape_is_recorded_and_later_ones_replay_it(
    driver: FakeCuda, tmp_path: Path
) -> None:
    loaded = session(tmp_path)
    assert run(driver, loaded, make_image(4, 6)) == PLAIN
    context = loaded._backend._held.context  # type: ignore[attr-defined]
    touched = context.touched
    assert run(driver, loaded, make_image(4, 6, 1)) == RECORDED
    for seed in (2, 3):
        assert run(driver, loaded, make_image(4, 6, seed)) == REPLAYED
    assert context.touched == touched, "a context that is changed makes its graphs undefined"
    assert len(driver.graphs) == 1


def test_another_shape_or_a_grown_buffer_forgets_the_graph(
    driver: FakeCuda, tmp_path: Path
) -> None:
    loaded = session(tmp_path)
    for seed in range(3):
        run(driver, loaded, make_image(8, 8, seed))
    forgotten = ["cuGraphExecDestroy", *PLAIN]
    assert run(driver, loaded, make_image(4, 6)) == forgotten, "smaller: the buffers stay"
    assert driver.graphs == {}
    assert run(driver, loaded, make_image(4, 6, 1)) == RECORDED
    assert run(driver, loaded, make_image(16, 16)) == forgotten, "larger: the buffers grow"
    assert run(driver, loaded, make_image(8, 8)) == PLAIN, "seen before, with other buffers"
    assert run(driver, loaded, make_image(8, 8, 1)) == RECORDED
    assert run(driver, loaded, make_image(8, 8, 2)) == REPLAYED


FAILING = [
    ("cuStreamBeginCapture_v2", RECORDING[:1]),
    ("cuStreamEndCapture", RECORDING[:3]),
    ("cuGraphInstantiateWithFlags", RECORDING),
]


@pytest.mark.parametrize(("name", "calls"), FAILING)
def test_what_cannot_be_recorded_runs_plainly_and_says_so_once(
    name: str, calls: list[str], driver: FakeCuda, tmp_path: Path
) -> None:
    loaded = session(tmp_path)
    assert run(driver, loaded, make_image(4, 6)) == PLAIN
    driver.fails = {name: 901}
    with pytest.warns(RuntimeWarning, match=rf"failed in {name}.*NYSTRA_CUDA_GRAPH=0"):
        made = run(driver, loaded, make_image(4, 6, 1))
    words = [name for name in made if name != "cuGetErrorString"]
    assert words == [PLAIN[0], *calls, *PLAIN[1:]]
    assert run(driver, loaded, make_image(4, 6, 2)) == PLAIN, "and no second attempt"
    assert driver.graphs == {}


def test_an_engine_that_refuses_while_it_is_recorded(driver: FakeCuda, tmp_path: Path) -> None:
    loaded = session(tmp_path)
    run(driver, loaded, make_image(4, 6))
    driver.fails = {"enqueue": 1}
    with (
        pytest.warns(RuntimeWarning, match="could not run the engine"),
        pytest.raises(NystraError, match="could not run the engine"),
    ):
        loaded(make_image(4, 6))
    assert driver.recording is None, "the stream is not left in capture mode"
    assert driver.graphs == {}
    driver.fails = {}
    assert run(driver, loaded, make_image(4, 6, 1)) == PLAIN


def test_the_time_on_the_device_is_that_of_the_engine_without_copies(
    driver: FakeCuda, tmp_path: Path
) -> None:
    """A copy takes a second of the test's clock, the engine a millisecond."""
    loaded = session(tmp_path)
    mark = len(driver.calls)
    times = [loaded.device_seconds({"input": make_image(4, 6, seed)}) for seed in range(3)]
    assert times == [pytest.approx(1e-3)] * 3
    assert driver.clock == pytest.approx(3 * 2.001)
    around = [name for name in driver.since(mark) if name in ("enqueue", "cuGraphLaunch")]
    assert around == ["enqueue", "enqueue", "cuGraphLaunch", "cuGraphLaunch"], "plain, recorded"
    assert driver.calls.count("cuEventCreate") == 2
    assert run(driver, loaded, make_image(4, 6, 4)) == REPLAYED
    driver.fails = {"cuEventRecord": 700}
    with pytest.raises(NystraError, match="failed in cuEventRecord"):
        loaded.device_seconds({"input": make_image(4, 6)})
    driver.fails = {}
    assert run(driver, loaded, make_image(4, 6, 5)) == PLAIN, "a failure starts anew"
    del loaded
    gc.collect()
    assert driver.memory == driver.graphs == driver.events == {}


def test_a_failed_launch_starts_anew(driver: FakeCuda, tmp_path: Path) -> None:
    loaded = session(tmp_path)
    for seed in range(3):
        run(driver, loaded, make_image(4, 6, seed))
    driver.fails = {"cuGraphLaunch": 700}
    with pytest.raises(NystraError, match="failed in cuGraphLaunch"):
        loaded(make_image(4, 6))
    assert driver.graphs == {}
    driver.fails = {}
    assert run(driver, loaded, make_image(4, 6, 4)) == PLAIN
    assert run(driver, loaded, make_image(4, 6, 5)) == RECORDED


def test_graphs_are_switched_off(
    driver: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NYSTRA_CUDA_GRAPH", "0")
    loaded = session(tmp_path)
    assert [run(driver, loaded, make_image(4, 6, seed)) for seed in range(3)] == [PLAIN] * 3
    monkeypatch.setenv("NYSTRA_CUDA_GRAPH", "yes")
    with pytest.raises(NystraError, match="NYSTRA_CUDA_GRAPH is 'yes', expected 0 or 1"):
        session(tmp_path)


def test_a_context_that_is_not_capturable_yet(
    driver: FakeCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeContext, "capturable", False)
    loaded = session(tmp_path)
    assert [run(driver, loaded, make_image(4, 6, seed)) for seed in range(2)] == [PLAIN] * 2
    monkeypatch.setattr(FakeContext, "capturable", True)
    assert run(driver, loaded, make_image(4, 6, 2)) == RECORDED


@pytest.mark.parametrize("runs", [0, 1, 3])
@pytest.mark.parametrize("broken", [False, True])
def test_everything_is_released(runs: int, broken: bool, driver: FakeCuda, tmp_path: Path) -> None:
    loaded = session(tmp_path)
    for seed in range(runs):
        run(driver, loaded, make_image(4, 6, seed))
    driver.fails = {"cuStreamSynchronize": 700} if broken else {}
    mark = len(driver.calls)
    del loaded
    gc.collect()
    assert driver.memory == driver.graphs == {}
    words = [name for name in driver.since(mark) if name != "cuGetErrorString"]
    graph = ["cuGraphExecDestroy"] * (runs == 3)
    buffers = ["cuMemFree_v2", "cuMemFreeHost"] * 2 * (runs > 0)
    end = ["cuStreamDestroy_v2", "cuDevicePrimaryCtxRelease_v2"]
    assert words == ["cuStreamSynchronize", *graph, *buffers, *end]


def test_a_shape_outside_the_profile(driver: FakeCuda, tmp_path: Path) -> None:
    loaded = session(tmp_path)
    with pytest.raises(
        NystraError, match=r"accept 'input' from \(1, 3, 1, 1\) to \(1, 3, 16, 16\)"
    ):
        loaded(np.zeros((1, 3, 17, 4), np.float32))


def test_a_run_uses_the_engine_whose_profile_takes_its_shapes(
    driver: FakeCuda, tmp_path: Path
) -> None:
    """Built for 16x16, then for 8x8: both sizes run."""
    profiles = [{"input": ((1, 3, side, side),) * 3} for side in (16, 8)]
    session(tmp_path, profile=profiles[0])
    loaded = session(tmp_path, profile=profiles[1])
    for side in (16, 8, 8, 16):
        image = make_image(side, side)
        np.testing.assert_array_equal(loaded(image), image.repeat(2, 2).repeat(2, 3))
    with pytest.raises(NystraError, match=r"from \(1, 3, 8, 8\) to .*, from \(1, 3, 16, 16\) to"):
        loaded(make_image(12, 12))


def test_what_the_cache_has_instead_is_said(driver: FakeCuda, tmp_path: Path) -> None:
    with pytest.raises(
        BackendUnavailableError, match=r"on Test GPU \(sm89\), only for Other \(sm89"
    ):
        session(tmp_path, device={"name": "Other", "capability": "sm89"})


def test_failures_of_the_driver_are_named(driver: FakeCuda, tmp_path: Path) -> None:
    loaded = session(tmp_path)
    driver.fails["cuStreamSynchronize"] = 700
    with pytest.raises(NystraError, match=r"failed in cuStreamSynchronize: unknown \(700\)"):
        loaded(np.zeros((1, 3, 4, 4), np.float32))
    driver.fails = {"cuMemAlloc_v2": 2}
    with pytest.raises(NystraError, match="not enough GPU memory"):
        loaded(np.zeros((1, 3, 16, 16), np.float32))


OTHER_ENGINES: list[dict[str, Any]] = [
    {"version": "11.1"},
    {"device": {"name": "Test GPU", "capability": "sm90"}},
    {"device": {"name": "Other GPU", "capability": "sm89"}},
    {"device": {}, "targets": ["sm120"]},
    {"flags": ["STRONGLY_TYPED"]},
]


@pytest.mark.parametrize("changes", OTHER_ENGINES)
def test_engines_of_others_are_passed_over(
    changes: dict[str, Any], driver: FakeCuda, tmp_path: Path
) -> None:
    with pytest.raises(BackendUnavailableError, match=r"no engine for m.onnx .* nystra build"):
        session(tmp_path, **changes)


def test_an_engine_of_another_level_is_used(driver: FakeCuda, tmp_path: Path) -> None:
    loaded = session(tmp_path, flags=toolkit.flags_at(2))
    assert loaded(np.ones((1, 3, 2, 2), np.float32)).shape == (1, 3, 4, 4)
    keys = {EngineRecord(flags=toolkit.flags_at(level)).key for level in (None, 0, 2)}
    assert len(keys) == 3


def test_level_and_threads_reach_the_builder() -> None:
    class Config:
        builder_optimization_level = None

        def clear_flag(self, _flag: object) -> None:
            pass

    config = Config()
    builder = SimpleNamespace(create_builder_config=lambda: config, max_threads=None)
    tf32 = SimpleNamespace(BuilderFlag=SimpleNamespace(TF32=0))
    network: Any = SimpleNamespace(builder=builder, toolkit=SimpleNamespace(module=tf32))
    configure(network, {})
    assert (config.builder_optimization_level, builder.max_threads) == (None, None)
    configure(network, {}, 2, 8)
    assert (config.builder_optimization_level, builder.max_threads) == (2, 8)


def test_an_engine_built_ahead_of_time(driver: FakeCuda, tmp_path: Path) -> None:
    loaded = session(tmp_path, backend="tensorrt-rtx", device={}, targets=["sm86", "sm89"])
    assert loaded.backend == "tensorrt-rtx"
    image = np.ones((1, 3, 2, 2), np.float32)
    np.testing.assert_array_equal(loaded(image), np.ones((1, 3, 4, 4), np.float32))


def test_without_a_driver_or_a_device() -> None:
    def absent(_name: str) -> Any:
        raise OSError("libcuda.so.1: no such file")

    with pytest.raises(BackendUnavailableError, match="no NVIDIA driver"):
        _cuda.Driver(absent)
    library = FakeCuda()
    library.fails["cuInit"] = 100
    with pytest.raises(BackendUnavailableError, match="finds no GPU"):
        _cuda.Driver(lambda _name: library)
