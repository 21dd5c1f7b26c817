"""The backend ``ort-tensorrt``: onnxruntime-gpu with its TensorRT provider and our plugins.

The provider builds engines when a session meets a new size, which takes minutes, and keeps none
(its cache would load engines without checks). It has no strongly typed networks: a file in half
precision may be computed in float32. `tensorrt` with ``nystra build`` has neither limit.

It has not run on a GPU yet; docs/gpu.md lists what was tested without one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ...core.errors import BackendUnavailableError
from ...plugins.library import LibraryChoice, library_path
from .ort_cuda import OrtCudaBackend

_PLUGINS = "nystra_trt_register10"


class OrtTensorrtBackend(OrtCudaBackend):
    """onnxruntime with TensorRT on the first NVIDIA GPU.

    Two libraries have the operators: the plugins, which the provider loads once per process, and
    the operator library, which registers the operators with onnxruntime and whose CUDA kernels
    compute the nodes that TensorRT does not.
    """

    precisions: ClassVar[frozenset[str]] = frozenset({"fp32", "fp16", "int8"})
    name: ClassVar[str] = "ort-tensorrt"
    provider: ClassVar[str] = "TensorrtExecutionProvider"
    needs: ClassVar[str] = (
        "TensorRT 10 (libnvinfer.so.10 where the loader finds it), the driver, CUDA and cuDNN: pip "
        "install 'onnxruntime-gpu[cuda,cudnn]'"
    )

    def _choose(self) -> LibraryChoice:
        choice = super()._choose()
        if choice.path is None:
            return choice
        plugins = _plugins(choice.path)
        reason = f"{choice.reason}, with the plugins {plugins}"
        return replace(choice, reason=reason)

    def _providers(self, library: Path | None) -> list[Any]:
        options = {
            "device_id": "0",
            "trt_engine_cache_enable": "False",
            # otherwise TensorRT may use fp16 anywhere, regardless of the file
            "trt_fp16_enable": "False",
        }
        if library is not None:
            options["trt_extra_plugin_lib_paths"] = str(_plugins(library))
        return [(self.provider, options), self._cuda_provider()]


def _plugins(library: Path) -> Path:
    adjacent = library.with_name(f"lib{_PLUGINS}.so")
    if adjacent.is_file():
        return adjacent
    try:
        return library_path(_PLUGINS)
    except FileNotFoundError as error:
        raise BackendUnavailableError(
            f"ort-tensorrt needs the plugins lib{_PLUGINS}.so: there is none next to {library}, "
            f"and {error}"
        ) from error
