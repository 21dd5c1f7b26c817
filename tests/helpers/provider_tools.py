"""Execution providers of onnxruntime for tests: one of the test's own, and WebGPU in software.

`FakeOnnxruntime` is onnxruntime with a plug-in provider that takes some operators and computes on
the CPU, right or wrong: what is registered, chosen, counted and refused is shown by it.
"""

from __future__ import annotations

import importlib.util
import os
import types
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
import pytest

PROVIDER = "PaperExecutionProvider"

_DRIVERS = (
    os.environ.get("VK_ICD_FILENAMES", ""),
    "/usr/lib/chromium/vk_swiftshader_icd.json",  # of Debian's package chromium
)


def _record(**values: Any) -> Any:
    return types.SimpleNamespace(**values)


class FakeOnnxruntime(types.ModuleType):
    """onnxruntime with a plug-in that brings `PROVIDER`.

    Attributes:
        takes: The operators that the provider computes; None: all.
        wrong: The operators that it computes wrongly: a product becomes a sum.
        hardware: The kinds of its devices.
        loaded: The libraries that were registered.
        chosen: The devices and options of the last session.
        tells: Sessions tell which nodes are whose.
        failure: What opening a session raises.
    """

    def __init__(self) -> None:
        super().__init__("onnxruntime")
        own = {*dir(FakeOnnxruntime), "__file__"}
        self.__dict__.update({name: part for name, part in vars(ort).items() if name not in own})
        self.__spec__ = importlib.util.find_spec("onnxruntime")
        self.__version__ = ort.__version__
        self.__path__ = ort.__path__
        self.takes: Iterable[str] | None = None
        self.wrong: Iterable[str] = ()
        self.hardware = ["GPU"]
        self.loaded: list[str] = []
        self.chosen: tuple[list[Any], dict[str, str]] = ([], {})
        self.tells = True
        self.failure: Exception | None = None
        fake = self

        class SessionOptions(ort.SessionOptions):  # type: ignore[misc]
            def add_provider_for_devices(self, devices: list[Any], options: Any) -> None:
                fake.chosen = (devices, options)

        class InferenceSession(ort.InferenceSession):  # type: ignore[misc]
            def __init__(self, path: str, options: Any, providers: Any, **rest: Any) -> None:
                if fake.failure is not None:
                    raise fake.failure
                if providers is not None:  # of another backend
                    super().__init__(path, options, providers=providers)
                    return
                assert rest == {"enable_fallback": 0}
                assert options.get_session_config_entry("session.record_ep_graph_assignment_info")
                self._model = onnx.load(path)
                for node in self._model.graph.node:
                    if node.op_type in fake.wrong:
                        node.op_type = "Add"
                super().__init__(
                    self._model.SerializeToString(), options, providers=["CPUExecutionProvider"]
                )

            def get_providers(self) -> list[str]:
                return [PROVIDER, "CPUExecutionProvider"]

            def __getattribute__(self, name: str) -> Any:
                if name == "get_provider_graph_assignment_info" and not fake.tells:
                    raise AttributeError(name)
                return super().__getattribute__(name)

            def get_provider_graph_assignment_info(self) -> list[Any]:
                nodes = self._model.graph.node
                mine = [n for n in nodes if fake.takes is None or n.op_type in fake.takes]
                rest = [n for n in nodes if n not in mine]
                parts = ((PROVIDER, mine), ("CPUExecutionProvider", rest))
                return [
                    _record(ep_name=name, get_nodes=lambda part=part: part)
                    for name, part in parts
                    if part
                ]

        self.SessionOptions = SessionOptions
        self.InferenceSession = InferenceSession

    def register_execution_provider_library(self, name: str, path: str) -> None:
        if Path(path).read_bytes() != b"a plug-in":
            raise ort.capi.onnxruntime_pybind11_state.Fail("invalid ELF header")
        self.loaded.append(path)

    def get_ep_devices(self) -> list[Any]:
        kinds = self.hardware if self.loaded else []
        mine = [
            _record(ep_name=PROVIDER, device=_record(type=_record(name=kind))) for kind in kinds
        ]
        cpu = _record(ep_name="CPUExecutionProvider", device=_record(type=_record(name="CPU")))
        return [cpu, *mine]


def require_webgpu(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the version of the WebGPU provider, set up to compute in software; skip without it."""
    try:
        found = version("onnxruntime-ep-webgpu")
    except PackageNotFoundError:
        pytest.skip("onnxruntime-ep-webgpu is not installed: pip install onnxruntime-ep-webgpu")
    driver = next((path for path in _DRIVERS if path and Path(path).is_file()), None)
    if driver is None:
        pytest.skip(
            "no software driver of Vulkan: apt install chromium brings SwiftShader, or name one in "
            "VK_ICD_FILENAMES"
        )
    monkeypatch.setenv("VK_ICD_FILENAMES", driver)
    monkeypatch.setenv("ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER", "1")
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.environ.get("XDG_RUNTIME_DIR", "/tmp"))
    return found
