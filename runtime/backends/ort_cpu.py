"""The backend ``ort-cpu``: onnxruntime on the CPU, with or without the operator library."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ...core.installation import is_installed, not_installed
from ._onnxruntime import OnnxRuntimeBackend


class OrtCpuBackend(OnnxRuntimeBackend):
    """onnxruntime on the CPU, which has no bfloat16 arithmetic."""

    precisions: ClassVar[frozenset[str]] = frozenset({"fp32", "fp16", "int8"})
    measures_memory: ClassVar[bool] = True
    concurrent: ClassVar[bool] = True
    timed: ClassVar[bool] = True

    @classmethod
    def available(cls) -> tuple[bool, str]:
        """Return whether onnxruntime is installed, and a sentence with the reason."""
        if is_installed("onnxruntime"):
            return True, "onnxruntime is installed"
        return False, not_installed("onnxruntime", "ort")

    def _providers(self, library: Path | None) -> list[Any]:
        return ["CPUExecutionProvider"]
