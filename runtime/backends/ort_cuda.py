"""The backend ``ort-cuda``: onnxruntime-gpu with its CUDA provider and our CUDA kernels.

It has not run on a GPU yet; docs/gpu.md lists what was tested without one.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...core.arrays import Array
from ...core.errors import BackendUnavailableError
from ...core.installation import install_command, is_installed, not_installed
from ...core.option import Options, option
from ...core.option_kinds import Choice
from ...plugins.library import CUDA_LIBRARY, LibraryChoice, has_cuda_kernels
from ..machine.gpu import find_device
from ..ort_values import copy_to_ort
from ._onnxruntime import OnnxRuntimeBackend


@dataclass(frozen=True)
class CudaOptions(Options):
    """Options of onnxruntime's CUDA provider.

    Attributes:
        conv_search: How cuDNN's algorithms for convolutions are chosen; all but ``heuristic``
            measure again for each image size.
    """

    conv_search: str = option(
        Choice(
            "heuristic",
            "how cuDNN chooses convolution algorithms",
            ("heuristic", "exhaustive", "default"),
        )
    )


class OrtCudaBackend(OnnxRuntimeBackend):
    """onnxruntime on the first NVIDIA GPU.

    Small nodes that onnxruntime itself puts on the CPU (shapes) stay there.

    Attributes:
        name: Name of the backend.
        provider: The execution provider that onnxruntime must use.
        needs: Packages to install if the provider cannot be loaded.
    """

    device: ClassVar[str] = "cuda"
    precisions: ClassVar[frozenset[str]] = frozenset({"fp32", "fp16", "bf16"})
    options: ClassVar[type[Options]] = CudaOptions
    library_name: ClassVar[str] = CUDA_LIBRARY
    name: ClassVar[str] = "ort-cuda"
    provider: ClassVar[str] = "CUDAExecutionProvider"
    needs: ClassVar[str] = "the driver, CUDA and cuDNN: pip install 'onnxruntime-gpu[cuda,cudnn]'"

    @classmethod
    def available(cls) -> tuple[bool, str]:
        """Return whether onnxruntime-gpu and a GPU are here, and a sentence with the reason."""
        if not is_installed("onnxruntime"):
            return False, not_installed("onnxruntime-gpu", "gpu")
        device = find_device()
        if isinstance(device, str):
            return False, f"{cls.name} runs on an NVIDIA GPU: {device}"
        import onnxruntime

        if cls.provider not in onnxruntime.get_available_providers():
            return False, (
                f"the installed onnxruntime has no {cls.provider}: pip uninstall onnxruntime, "
                f"then {install_command('gpu')}"
            )
        return True, f"{cls.name} on {device.name}"

    def time_on_device(self, feeds: Mapping[str, Array]) -> float | None:
        """Run on inputs and outputs in the GPU's memory; return the seconds of the run.

        onnxruntime's stream is its own, so this is the time of a run that ends when the GPU is
        done, starting its kernels included; the copies are not.
        """
        binding = self._session.io_binding()
        for name, array in feeds.items():
            binding.bind_ortvalue_input(name, copy_to_ort(array, device="cuda"))
        for tensor in self.outputs:
            binding.bind_output(tensor.name, "cuda", 0)
        binding.synchronize_inputs()
        start = time.perf_counter()
        self._run_bound(binding, feeds)
        binding.synchronize_outputs()
        return time.perf_counter() - start

    def _choose(self) -> LibraryChoice:
        choice = super()._choose()
        if choice.path is not None and not has_cuda_kernels(choice.path):
            raise BackendUnavailableError(
                f"{self.name} needs an operator library with CUDA kernels, and {choice.path} has "
                f"none: expected lib{CUDA_LIBRARY}.so. Use `library` none for the bodies; "
                "see docs/gpu.md"
            )
        needed = self.header.has_operators
        if self.spec.library == "auto" and choice.path is None and needed:
            raise BackendUnavailableError(
                f"{self.name} has no CUDA kernels for the operators of {self.path}: "
                f"{choice.reason}. Use `library` none for the operators' bodies; see docs/gpu.md"
            )
        return choice

    def _providers(self, library: Path | None) -> list[Any]:
        return [self._cuda_provider()]

    def _cuda_provider(self) -> tuple[str, dict[str, str]]:
        search: str = self.chosen.values()["conv_search"]
        options = {
            "device_id": "0",
            "use_tf32": "0",  # precision is that of the file
            "cudnn_conv_algo_search": search.upper(),
        }
        return "CUDAExecutionProvider", options

    def _create(self, library: Path | None) -> Any:
        """Create the session; onnxruntime's output goes to stderr, not into our results."""
        import onnxruntime

        with contextlib.redirect_stdout(sys.stderr):
            if hasattr(onnxruntime, "preload_dlls"):
                onnxruntime.preload_dlls()  # CUDA and cuDNN from pip's wheels
            try:
                session = super()._create(library)
            except (ValueError, RuntimeError) as error:  # of a provider; a model's are others
                text = " ".join(str(error).split()).rstrip(".")[:600]
                raise BackendUnavailableError(
                    f"onnxruntime cannot start {self.provider}: {text}. It needs {self.needs}; "
                    "see docs/gpu.md"
                ) from error
        if self.provider not in session.get_providers():
            raise BackendUnavailableError(
                f"onnxruntime {onnxruntime.__version__} would run {self.path} by "
                f"{', '.join(session.get_providers())} and not by {self.provider}, which it "
                f"could not load (see its log above). It needs {self.needs}; see docs/gpu.md"
            )
        session.disable_fallback()
        return session
