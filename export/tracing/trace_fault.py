"""Summarizes PyTorch's error for a network that it cannot trace in one sentence."""

from __future__ import annotations

import re

import torch

from ...core.errors import foreign_text

_CALL = re.compile(r'following call raised this error:\s+File "([^"]+)", line (\d+)')
_LONGEST = 400


def trace_fault(error: BaseException) -> str:
    """Return the reason and the line of the network's code, without PyTorch's further advice."""
    while isinstance(error, torch.onnx.OnnxExporterError) and error.__cause__ is not None:
        error = error.__cause__  # it names the steps of an export, its cause the reason
    lines = foreign_text(error).splitlines()
    reason = lines[0].partition("For more information")[0]
    if "data-dependent" in reason:
        reason = "its code branches on the values of a tensor"
    if lines[1:] and lines[1].startswith("  - "):  # which size became a constant
        reason += lines[1][3:]
    reason = reason.strip().rstrip(".")[:_LONGEST]
    call = _CALL.search(str(error))
    return reason if call is None else f"{reason} ({call[1].rpartition('/')[2]}, line {call[2]})"
