"""Detects networks from ONNX files without importing the reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeGuard

ARCHITECTURE = "onnx"
"""What the facts of such a network call it."""


def is_onnx(source: Any) -> TypeGuard[Path]:
    """Whether a network is read from an ONNX file."""
    return isinstance(source, Path) and source.suffix.lower() == ".onnx"
