"""From a checkpoint to an ONNX file that is checked against PyTorch.

The names below are imported on first use, so that the commands start without torch and onnx.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .attention.mechanism import Mechanism
    from .attention.plan import Plan, read_plan
    from .attention.registry import mechanism
    from .options import ExportOptions
    from .pipeline import ExportResult, export_model

__all__ = [
    "ExportOptions",
    "ExportResult",
    "Mechanism",
    "Plan",
    "export_model",
    "mechanism",
    "read_plan",
]

_HOME = {
    "ExportOptions": "options",
    "ExportResult": "pipeline",
    "Mechanism": "attention.mechanism",
    "Plan": "attention.plan",
    "export_model": "pipeline",
    "mechanism": "attention.registry",
    "read_plan": "attention.plan",
}

__getattr__, __dir__ = lazy_names(__name__, _HOME)
