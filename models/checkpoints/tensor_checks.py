"""Checks of a checkpoint's tensors before anything computes with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ...core.errors import CheckpointError
from .rebuilding import HIGHEST_RANK, MAX_TENSORS

MAX_BLOCKS = 500
"""Limit of tensors for a network that is built from its keys: ten times the largest published
one."""


def check_tensors(state: Mapping[str, Tensor], path: Path) -> None:
    """Check that tensors are plain, as large as they say, and finite.

    Raises:
        CheckpointError: One is not; the message names its key and kind.
    """
    if len(state) > MAX_TENSORS:
        raise CheckpointError(f"{path} holds {len(state)} tensors, expected {MAX_TENSORS} at most")
    for key, value in state.items():
        fault = _fault(value)
        if fault:
            raise not_plain(path, key, fault)
    bad = [key for key, value in state.items() if not _finite(value)]
    if bad:
        raise CheckpointError(
            f"{path} holds NaN or infinite values in {len(bad)} tensors, first {bad[0]}: its "
            "training diverged, or the file is damaged"
        )


def not_plain(path: Path, key: str, fault: str) -> CheckpointError:
    """Return the error for a tensor that is ``fault``: "a sparse tensor"."""
    return CheckpointError(
        f"{path}: {key} is {fault}; nystra takes plain dense tensors. Save the state dict "
        "with safetensors.torch.save_file"
    )


def _fault(value: Tensor) -> str:
    if value.is_nested:
        return "a nested tensor"
    if value.layout != torch.strided:
        return f"a sparse tensor ({str(value.layout).removeprefix('torch.')})"
    if value.is_quantized:
        return f"a quantized tensor ({str(value.dtype).removeprefix('torch.')})"
    if value.device.type != "cpu":
        return f"on the device {value.device.type!r}, without values"
    if value.dim() > HIGHEST_RANK:
        return f"of {value.dim()} dimensions"
    held = value.untyped_storage().nbytes()
    if value.numel() * value.element_size() > held:
        return f"an expanded view, {value.numel()} elements of {held} bytes"
    return ""


def _finite(value: Tensor) -> bool:
    if not (value.is_floating_point() or value.is_complex()):
        return True
    wide = value.float() if value.element_size() == 1 else value
    return bool(torch.isfinite(wide).all())
