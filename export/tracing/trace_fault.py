"""Summarizes PyTorch's error for a network that it cannot trace in one sentence."""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path

import torch

from ...core.errors import foreign_text

_ROOT = Path(__file__).parents[2]
TORCH = f"{Path(torch.__file__).parent}/"
NYSTRA = tuple(
    f"{_ROOT / name}/" for name in ("cli", "core", "export", "models", "plugins", "runtime")
)
_LIBRARIES = ("mpmath", "numpy", "onnx", "onnx_ir", "onnxscript", "sympy")
_STANDARD, _INSTALLED = (sysconfig.get_path(name) for name in ("stdlib", "purelib"))
_LONGEST = 400


_REASONS = (
    ("data-dependent", "its code branches on the values of a tensor"),
    ("unbacked symbols", "its code computes with numbers that it reads from a tensor"),
    (r"\.numpy\(\) is not supported", "its code makes a NumPy array of a tensor"),
    (
        r"symbolically traced variables|SymInt|SymFloat|SymBool|base 10: 's\d+'",
        "its code needs the value of a size that is free",
    ),
    (
        r"No ONNX function found for <(?:OpOverload\(op='\w+\.|built-in function )(\w+).*",
        r"PyTorch has no translation of `\1` to ONNX, so write it with other operators",
    ),
)
"""Text of PyTorch's -> the reason."""


def trace_fault(error: BaseException) -> str:
    """Return the reason and the line of the network's code, without PyTorch's further advice."""
    while isinstance(error, torch.onnx.OnnxExporterError) and error.__cause__ is not None:
        error = error.__cause__  # it names the steps of an export, its cause the reason
    lines = foreign_text(error).splitlines()
    reason = lines[0].partition("For more information")[0]
    for pattern, own in _REASONS:
        match = re.search(pattern, reason)
        if match is not None:
            return match.expand(own) + _line(error)
    if lines[1:] and lines[1].startswith("  - "):  # which size became a constant
        reason += lines[1][3:]
    reason = reason.strip().rstrip(".")[:_LONGEST]
    return reason + _line(error)


def _line(error: BaseException) -> str:
    """Return the line of the network's code that an error came from, or ""."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_of_network(frame.filename):
            return f" ({Path(frame.filename).name}, line {frame.lineno})"
    return ""


def is_of_network(file: str) -> bool:
    """Return whether code is neither PyTorch's, nor nystra's, nor Python's own."""
    if file.startswith((f"{_STANDARD}/", "<")) and not file.startswith(_INSTALLED):
        return False
    if any(f"/site-packages/{name}/" in file for name in _LIBRARIES):
        return False
    return not file.startswith((TORCH, *NYSTRA))
