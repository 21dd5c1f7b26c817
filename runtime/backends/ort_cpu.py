"""The backend ``ort-cpu``: onnxruntime on the CPU, with or without the operator library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...plugins.errors import BackendUnavailableError
from ._onnxruntime import OnnxRuntimeBackend, installed

_MISSING = "onnxruntime is not installed: pip install 'nystra[ort]'"


class OrtCpuBackend(OnnxRuntimeBackend):
    """onnxruntime on the CPU; see `Backend` for the attributes."""

    @staticmethod
    def available() -> tuple[bool, str]:
        """Return whether onnxruntime is installed, and a sentence that says so."""
        return (True, "onnxruntime is installed") if installed() else (False, _MISSING)

    def _providers(self, library: Path | None) -> list[Any]:
        precision = self._header.metadata.get("nystra.precision", "")
        if precision.startswith("bf16"):
            takers = ["tensorrt", "tensorrt-rtx"]
            if precision == "bf16":
                takers.insert(0, "ort-cuda")
            raise BackendUnavailableError(
                f"{self._path} computes in bfloat16 ({precision}), and onnxruntime's CPU has no "
                f"arithmetic of that type: use --backend {' or '.join(takers)}, or export it "
                "with --precision fp16 or fp32"
            )
        return ["CPUExecutionProvider"]
