"""The ONNX domain of the operators, and the version of the default one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

DOMAIN = "nystra"


def opset_of(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's own operators that a model imports; 0 if none."""
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    return max(versions, default=0)
