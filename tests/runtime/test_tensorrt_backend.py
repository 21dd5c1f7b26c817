"""The TensorRT backend on Polygraphy's own runner, with engines and memory of the test: no GPU.

That a real engine runs is not shown here; it is listed in docs/gpu.md among what only a GPU shows.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nystra.core.errors import BackendUnavailableError, NystraError
from nystra.core.installation import find
from nystra.runtime import Session
from nystra.runtime.backends.tensorrt_rtx import TensorrtRtxBackend
from nystra.runtime.compiled import cache
from nystra.runtime.compiled.cache import EngineRecord
from nystra.runtime.compiled.model import EngineModel
from nystra.runtime.engines.builder import RTX, TENSORRT, Builder
from nystra.runtime.machine import gpu
from runtime_models import save_upscaler
from shared import ROOT
from tensorrt_tools import use_sdk

DEVICE = gpu.Device("Test GPU", "sm89", 13)


def forget() -> None:
    """Remove what chose a builder for this process."""
    for builder in (TENSORRT, RTX):
        builder.__dict__.pop("module", None)
    for name in [n for n in sys.modules if n.partition(".")[0] in ("polygraphy", "tensorrt")]:
        del sys.modules[name]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """A machine with a GPU, whose memory is that of this process."""
    forget()
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "helpers" / "fake_tensorrt"))
    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(gpu, "find_device", lambda: DEVICE)
    runtime = import_module("tensorrt").cuda
    calls = import_module("polygraphy.cuda.cuda")
    calls.G_CUDA = calls.Cuda.__new__(calls.Cuda)
    calls.G_CUDA.handle = runtime
    yield runtime
    forget()


BUILT: dict[str, Any] = {
    "backend": "tensorrt",
    "version": "11.2",
    "device": {"name": "Test GPU", "capability": "sm89", "cuda": 13},
}
"""How the engines of these tests were built."""


def session(tmp_path: Path, content: str = "16", **changes: Any) -> Session:
    """A session on an engine from the cache."""
    model = EngineModel.open(save_upscaler(tmp_path / "m.onnx"))
    profile = {"input": ((1, 3, 1, 1), (1, 3, 8, 8), (1, 3, 16, 16))}
    fields = {"profile": profile, **BUILT, **changes}
    record = EngineRecord(hashes=model.hashes(), **fields)
    (tmp_path / "engine").write_text(content)
    cache.store(record, tmp_path / "engine")
    return Session(model.path, backend=fields["backend"])


def run(loaded: Session, height: int, width: int, seed: int = 0) -> None:
    """Run and check one image."""
    image = np.random.default_rng(seed).random((1, 3, height, width), dtype=np.float32)
    np.testing.assert_array_equal(loaded(image), image.repeat(2, 2).repeat(2, 3))


def test_runs_at_growing_and_shrinking_sizes(cuda: Any, tmp_path: Path) -> None:
    loaded = session(tmp_path)
    (tensor,) = loaded.inputs
    assert (tensor.shape, tensor.dtype) == ((None, 3, None, None), "float32")
    for seed, (height, width) in enumerate(((4, 6), (16, 9), (1, 1), (16, 9))):
        run(loaded, height, width, seed)
    assert cuda.calls.count("load") == 1
    assert len(cuda.memory) == 2, "a block of each tensor, which grew"
    loaded.device_seconds({"input": np.ones((1, 3, 4, 4), np.float32)})
    del loaded
    gc.collect()
    assert cuda.memory == {}, "all is released"
    assert cuda.calls[-1] == "cudaStreamDestroy"


def test_outputs_are_not_overwritten_by_the_next_run(cuda: Any, tmp_path: Path) -> None:
    loaded = session(tmp_path)
    first = loaded(np.zeros((1, 3, 2, 2), np.float32))
    loaded(np.ones((1, 3, 2, 2), np.float32))
    assert not first.any()


def test_the_time_on_the_device_is_that_of_the_engine_without_copies(
    cuda: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy takes a second of the test's clock, the engine a millisecond."""
    loaded = session(tmp_path)
    monkeypatch.setattr("polygraphy.backend.trt.runner.time.time", lambda: cuda.clock)
    image = {"input": np.ones((1, 3, 4, 6), np.float32)}
    assert loaded.device_seconds(image) == pytest.approx(1e-3)
    kept = len(cuda.memory)
    cuda.fails = {"cudaMemcpy": 700}
    with pytest.raises(NystraError, match="CUDA Error: 700"):
        loaded.device_seconds(image)
    cuda.fails = {}
    assert loaded.device_seconds(image) == pytest.approx(1e-3)
    assert len(cuda.memory) == kept


def test_failures_are_named_and_the_engine_is_loaded_again(cuda: Any, tmp_path: Path) -> None:
    loaded = session(tmp_path)
    for name, number, words in (
        ("cudaMalloc", 2, "not enough GPU memory"),
        ("enqueue", 1, r"`execute_async_v3\(\)` failed"),
        ("cudaStreamSynchronize", 700, "tensorrt 11.2 cannot load or run .* CUDA Error: 700"),
    ):
        loads = cuda.calls.count("load")
        cuda.fails = {name: number}
        with pytest.raises(NystraError, match=words):
            loaded(np.zeros((1, 3, 16, 16), np.float32))
        cuda.fails = {}
        run(loaded, 16, 16)
        assert cuda.calls.count("load") == loads + 1


def test_an_engine_that_cannot_be_loaded(cuda: Any, tmp_path: Path) -> None:
    with pytest.raises(NystraError, match=r"Could not deserialize engine.* nystra build --rebuild"):
        session(tmp_path, content="no engine")


def test_a_run_uses_the_engine_whose_profile_takes_its_shapes(cuda: Any, tmp_path: Path) -> None:
    """Built for 16x16, then for 8x8: both sizes run."""
    session(tmp_path, profile={"input": ((1, 3, 16, 16),) * 3})
    loaded = session(tmp_path, "8", profile={"input": ((1, 3, 8, 8),) * 3})
    loads = cuda.calls.count("load")
    for side in (16, 8, 8, 16):
        run(loaded, side, side)
    with pytest.raises(
        NystraError, match=r"from \(1, 3, 8, 8\) to .*; 'input' from \(1, 3, 16, 16\) to"
    ):
        loaded(np.zeros((1, 3, 12, 12), np.float32))
    run(loaded, 16, 16)
    assert cuda.calls.count("load") == loads + 3, "a shape that no engine takes loads none again"


OTHER_ENGINES: list[dict[str, Any]] = [
    {"version": "11.1"},
    {"device": {"name": "Test GPU", "capability": "sm90"}},
    {"device": {"name": "Other GPU", "capability": "sm89"}},
    {"device": {}, "targets": ["sm120"]},
]


@pytest.mark.parametrize("changes", OTHER_ENGINES)
def test_engines_of_others_are_passed_over(
    changes: dict[str, Any], cuda: Any, tmp_path: Path
) -> None:
    with pytest.raises(BackendUnavailableError, match=r"no engine for m.onnx .* nystra build"):
        session(tmp_path, **changes)
    assert "load" not in cuda.calls


def test_an_engine_of_another_level_is_used(cuda: Any, tmp_path: Path) -> None:
    run(session(tmp_path, flags=["LEVEL_2"]), 2, 2)


def test_one_builder_in_a_process(
    cuda: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(session(tmp_path), 2, 2)
    other = Builder("tensorrt-rtx", "TensorRT-RTX", TENSORRT.modules, rtx=True)
    monkeypatch.setattr(TensorrtRtxBackend, "engine", other)
    with pytest.raises(BackendUnavailableError, match="use tensorrt-rtx in another process"):
        session(tmp_path, backend="tensorrt-rtx", device={}, targets=["sm86", "sm89"])


def test_the_cuda_runtime_of_the_wheels_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polygraphy by itself finds that of CUDA 12's wheels."""
    place = find("nvidia")
    folders = [] if place is None else place.submodule_search_locations or []
    files = [file for folder in folders for file in Path(folder).glob("cu*/lib/libcudart.so.*")]
    if not files:
        pytest.skip("no wheel of the CUDA runtime is installed")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    script = (
        "import os\nfrom nystra.runtime.backends.tensorrt import _wheels_on_the_path\n"
        "with _wheels_on_the_path():\n    from polygraphy.cuda import wrapper\n"
        "    found = wrapper()\n"
        "print(found.handle._name, os.environ.get('LD_LIBRARY_PATH'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(files[0]), "None"]


def test_a_real_runtime_without_a_driver_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorRT-RTX; TensorRT itself ends the process there, before which `available` is asked."""
    backend = use_sdk("rtx", monkeypatch)
    script = f"""
from pathlib import Path
import nystra.runtime.machine.gpu as gpu
from nystra.core.errors import NystraError
from nystra.runtime import Session
from nystra.runtime.backends.tensorrt_rtx import TensorrtRtxBackend
from nystra.runtime.compiled import cache
from nystra.runtime.engines.builder import find_builder
from nystra.runtime.compiled.model import EngineModel
from nystra.runtime.compiled.cache import EngineRecord
gpu.find_device = lambda: gpu.Device("Test GPU", "sm89", 13)
model = EngineModel.open({str(save_upscaler(tmp_path / "m.onnx"))!r})
record = EngineRecord(backend={backend!r}, version=find_builder({backend!r}).version,
    hashes=model.hashes(), device={{"name": "Test GPU", "capability": "sm89"}})
engine = Path({str(tmp_path / "engine")!r})
engine.write_bytes(b"no engine")
cache.store(record, engine)
try:
    Session(model.path, backend={backend!r})
except NystraError as error:
    print(error)
"""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "NYSTRA_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith(f"{backend} "), done.stderr
    assert "cannot load or run the engine" in done.stdout
