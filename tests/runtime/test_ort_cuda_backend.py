"""The backends ort-cuda and ort-tensorrt with a fake onnxruntime: no GPU is involved.

What is loaded, refused and said is shown here; that a GPU runs it is not, see docs/gpu.md.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import ort_cuda_tools as tools
from nystra.core.errors import BackendUnavailableError, NystraError
from nystra.plugins.library import CUDA_LIBRARY
from nystra.runtime import Session
from nystra.runtime.backends import backend_class, ort_cuda
from nystra.runtime.machine.gpu import Device
from runtime_models import save_operator, save_upscaler

GPU = Device("Test GPU", "sm90", 13)
NAMES = ("ort-cuda", "ort-tensorrt")
PROVIDER = {"ort-cuda": "CUDAExecutionProvider", "ort-tensorrt": "TensorrtExecutionProvider"}


class FakeOnnxruntime(types.ModuleType):
    """onnxruntime-gpu as far as the backends see it; sessions run on the CPU.

    Attributes:
        loads: Providers whose libraries can be loaded.
        error: What creating a provider raises.
        asked: The providers a session was asked for, with their options.
        registered: The operator libraries registered, which are not loaded.
        placed: Inputs and outputs that were put on the GPU, in order, and what ran.
    """

    def __init__(self) -> None:
        super().__init__("onnxruntime")
        self.__spec__ = importlib.util.find_spec("onnxruntime")
        self.__version__ = ort.__version__
        self.GraphOptimizationLevel = ort.GraphOptimizationLevel
        self.available = ["TensorrtExecutionProvider", "CUDAExecutionProvider"]
        self.loads = list(self.available)
        self.error: Exception | None = None
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.registered: list[str] = []
        self.fallback: list[str] = []
        self.placed: list[str] = []
        self.SessionOptions = _session_options(self)
        self.InferenceSession = _session(self)
        self.RunOptions = ort.RunOptions
        self.OrtValue = _ort_value(self)

    def get_available_providers(self) -> list[str]:
        return [*self.available, "CPUExecutionProvider"]

    def preload_dlls(self) -> None:
        sys.stdout.write("Failed to load libcudnn.so")


def _ort_value(fake: FakeOnnxruntime) -> Any:
    """Return the class of values, whose copies are recorded."""

    class OrtValue:
        @staticmethod
        def ortvalue_from_numpy(array: np.ndarray, device: str, number: int) -> Any:
            fake.placed.append(f"copy to {device}:{number}")
            return ort.OrtValue.ortvalue_from_numpy(array)

    return OrtValue


def _session_options(fake: FakeOnnxruntime) -> Any:
    """Return the class of options, whose libraries are recorded."""

    class SessionOptions(ort.SessionOptions):  # type: ignore[misc]
        def register_custom_ops_library(self, path: str) -> None:
            fake.registered.append(path)

    return SessionOptions


def _session(fake: FakeOnnxruntime) -> Any:
    """Return the class of sessions, which run on the CPU."""

    class Binding:
        """Inputs and outputs bound to a GPU that is this machine's memory."""

        def __init__(self, binding: Any) -> None:
            self._binding = binding

        def __getattr__(self, name: str) -> Any:
            return getattr(self._binding, name)

        def bind_output(self, name: str, device: str = "cpu", number: int = 0) -> None:
            if device != "cpu":
                fake.placed.append(f"{name} on {device}:{number}")
            self._binding.bind_output(name)

        def synchronize_inputs(self) -> None:
            fake.placed.append("wait")

        def synchronize_outputs(self) -> None:
            fake.placed.append("wait")

    class InferenceSession(ort.InferenceSession):  # type: ignore[misc]
        def __init__(self, path: str, options: Any, providers: Any, **rest: Any) -> None:
            assert rest == {"enable_fallback": 0}
            fake.asked = providers
            sys.stdout.write("*** EP Error ***")  # as onnxruntime does giving up a provider
            if fake.error is not None:
                raise fake.error
            super().__init__(path, options, providers=["CPUExecutionProvider"])

        def io_binding(self) -> Any:
            return Binding(super().io_binding())

        def run_with_iobinding(self, binding: Any, options: Any = None) -> None:
            if fake.placed:
                fake.placed.append("run")
                time.sleep(0.01)
            super().run_with_iobinding(binding._binding, options)

        def get_providers(self) -> list[str]:
            names = [name for name, _ in fake.asked if name in fake.loads]
            return [*names, "CPUExecutionProvider"]

        def disable_fallback(self) -> None:
            fake.fallback.append("off")

    return InferenceSession


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeOnnxruntime:
    """A machine with a GPU, onnxruntime-gpu and our libraries."""
    module = FakeOnnxruntime()
    monkeypatch.setitem(sys.modules, "onnxruntime", module)
    monkeypatch.setattr(ort_cuda, "find_device", lambda: GPU)
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    (libraries / f"lib{CUDA_LIBRARY}.so").write_bytes(b"... CUDAExecutionProvider ...")
    (libraries / "libnystra_trt_register10.so").write_bytes(b"plugins")
    monkeypatch.setenv("NYSTRA_LIBRARY_DIR", str(libraries))
    return module


def image() -> np.ndarray:
    return np.random.default_rng(0).random((1, 3, 4, 5), dtype=np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_runs_and_says_by_what(name: str, fake: FakeOnnxruntime, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    session = Session(save_operator(tmp_path / "m.onnx", body=True), backend=name)
    np.testing.assert_array_equal(session(image()), 2 * image())
    assert fake.asked[0][0] == PROVIDER[name]
    assert fake.asked[-1][0] == "CUDAExecutionProvider"
    assert dict(fake.asked)["CUDAExecutionProvider"]["use_tf32"] == "0"
    assert fake.registered == [str(session.library)]
    assert session.library == tmp_path / "libraries" / f"lib{CUDA_LIBRARY}.so"
    assert "is loaded" in session.library_reason
    assert fake.fallback == ["off"]
    out, err = capsys.readouterr()
    assert out == ""
    assert "EP Error" in err


@pytest.mark.parametrize("name", NAMES)
def test_the_time_on_the_device_is_of_tensors_that_stay_there(
    name: str, fake: FakeOnnxruntime, tmp_path: Path
) -> None:
    session = Session(save_operator(tmp_path / "m.onnx", body=True), backend=name)
    (image_name,), (result,) = [[t.name for t in s] for s in (session.inputs, session.outputs)]
    seconds = session.device_seconds({image_name: image()})
    assert fake.placed == ["copy to cuda:0", f"{result} on cuda:0", "wait", "run", "wait"]
    assert seconds is not None
    assert 0.01 <= seconds < 1
    fake.placed.clear()
    session(image())
    assert fake.placed == [], "a run takes and returns arrays of this machine"


@pytest.mark.parametrize("name", NAMES)
def test_the_search_of_cudnn_is_an_option(name: str, fake: FakeOnnxruntime, tmp_path: Path) -> None:
    path = save_operator(tmp_path / "m.onnx", body=True)
    for options, search in (({}, "HEURISTIC"), ({"conv_search": "exhaustive"}, "EXHAUSTIVE")):
        Session(path, name, options=options)
        assert dict(fake.asked)["CUDAExecutionProvider"]["cudnn_conv_algo_search"] == search
    with pytest.raises(NystraError, match="`conv_search` is 'all', expected heuristic, exhaustive"):
        Session(path, name, options={"conv_search": "all"})


def test_tensorrt_gets_the_plugins_and_no_cache(fake: FakeOnnxruntime, tmp_path: Path) -> None:
    session = Session(save_operator(tmp_path / "m.onnx", body=True), backend="ort-tensorrt")
    options = dict(fake.asked)["TensorrtExecutionProvider"]
    plugins = tmp_path / "libraries" / "libnystra_trt_register10.so"
    assert options["trt_extra_plugin_lib_paths"] == str(plugins)
    assert options["trt_engine_cache_enable"] == options["trt_fp16_enable"] == "False"
    assert str(plugins) in session.library_reason
    plain = Session(save_upscaler(tmp_path / "plain.onnx"), backend="ort-tensorrt")
    assert "trt_extra_plugin_lib_paths" not in dict(fake.asked)["TensorrtExecutionProvider"]
    assert plain.library is None
    plugins.unlink()
    with pytest.raises(BackendUnavailableError, match=r"needs the plugins .*nystra_trt_register10"):
        Session(tmp_path / "m.onnx", backend="ort-tensorrt")


@pytest.mark.parametrize("name", NAMES)
def test_never_falls_back_to_the_cpu(name: str, fake: FakeOnnxruntime, tmp_path: Path) -> None:
    path = save_upscaler(tmp_path / "m.onnx")
    fake.loads.remove(PROVIDER[name])
    with pytest.raises(BackendUnavailableError, match=f"not by {PROVIDER[name]}.*pip") as caught:
        Session(path, backend=name)
    assert caught.value.exit_code == 3
    fake.error = RuntimeError("CUDA failure 35: CUDA driver version is insufficient")
    with pytest.raises(BackendUnavailableError, match=r"cannot start .*CUDA failure 35"):
        Session(path, backend=name)
    operator = save_operator(tmp_path / "o.onnx", body=True)
    with pytest.raises(BackendUnavailableError, match=r"cannot start .*CUDA failure 35"):
        Session(operator, backend=name)  # and not: the library does not support the model
    fake.error = ort.capi.onnxruntime_pybind11_state.InvalidGraph("a bad graph")
    with pytest.raises(NystraError, match=r"cannot load .*a bad graph") as caught_model:
        Session(path, backend=name)
    assert caught_model.value.exit_code == 2


@pytest.mark.parametrize("name", NAMES)
def test_without_the_library(
    name: str, fake: FakeOnnxruntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_operator(tmp_path / "m.onnx", body=True)
    other = tmp_path / "libnystra_onnxruntime.so"
    other.write_bytes(b"of the CPU alone")
    with pytest.raises(BackendUnavailableError, match="has none: expected libnystra_onnxruntime_c"):
        Session(path, backend=name, library=other)
    with pytest.raises(NystraError, match="no operator library at"):
        Session(path, backend=name, library=tmp_path / "absent.so")
    monkeypatch.setenv("NYSTRA_LIBRARY_DIR", str(tmp_path))
    monkeypatch.setattr("nystra.plugins.library.resources.files", lambda _name: tmp_path)
    with pytest.raises(BackendUnavailableError, match=r"no CUDA kernels for .*CUDACXX.* none"):
        Session(path, backend=name)
    session = Session(path, backend=name, library="none")
    assert session.library is None
    np.testing.assert_array_equal(session(image()), 2 * image())


@pytest.mark.parametrize("name", NAMES)
def test_what_is_missing_is_named(
    name: str, fake: FakeOnnxruntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_upscaler(tmp_path / "m.onnx")
    assert backend_class(name)[1].available() == (True, f"{name} on Test GPU")
    fake.available.clear()
    with pytest.raises(BackendUnavailableError, match=f"has no {PROVIDER[name]}.*onnxruntime-gpu"):
        Session(path, backend=name)
    monkeypatch.setattr(ort_cuda, "find_device", lambda: "the NVIDIA driver finds no GPU")
    with pytest.raises(BackendUnavailableError, match=f"{name} runs on an NVIDIA GPU: .* no GPU"):
        Session(path, backend=name)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(BackendUnavailableError, match="onnxruntime-gpu is not installed"):
        Session(path, backend=name)


def test_auto_stays_on_the_cpu(fake: FakeOnnxruntime) -> None:
    """Also with a GPU: nothing has run on one yet, so only explicit requests use it."""
    assert backend_class("auto")[0] == "ort-cpu"


@pytest.mark.skipif("NYSTRA_ORT_GPU_ROOT" not in os.environ, reason="no NYSTRA_ORT_GPU_ROOT")
@pytest.mark.parametrize("name", NAMES)
def test_onnxruntime_gpu_without_a_driver(name: str, tmp_path: Path) -> None:
    """The real wheel, told that there is a GPU, cannot load its provider and says so."""
    if not isinstance(ort_cuda.find_device(), str):
        pytest.skip("this machine has a GPU")
    save_upscaler(tmp_path / "m.onnx")
    script = (
        f"import sys; sys.path.insert(0, {os.environ['NYSTRA_ORT_GPU_ROOT']!r})\n"
        "from nystra.runtime import Session\n"
        "from nystra.runtime.backends import ort_cuda\n"
        "from nystra.runtime.machine.gpu import Device\n"
        "ort_cuda.find_device = lambda: Device('none', 'sm90', 13)\n"
        "from nystra.core.errors import BackendUnavailableError\n"
        "try: Session(sys.argv[1], backend=sys.argv[2])\n"
        "except BackendUnavailableError as error: print(error)\n"
    )
    done = tools.child(["-c", script, str(tmp_path / "m.onnx"), name])
    assert done.returncode == 0, done.stderr
    assert PROVIDER[name] in done.stdout.splitlines()[0]
    assert "It needs" in done.stdout
    assert len(done.stdout.splitlines()) == 1
