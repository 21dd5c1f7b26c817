"""From a checkpoint to an ONNX file that is checked against PyTorch.

The names below are imported on first use, so that the commands start without torch and onnx.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
