"""Checks of a checkpoint's tensors before anything computes with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from ...core.errors import CheckpointError
from .rebuilding import HIGHEST_RANK, MAX_TENSORS

MAX_BLOCKS = 500
"""Limit of tensors for a network that is built from its keys: ten times the largest published
one."""


_EXPANSION = 32
_ALWAYS_ALLOWED = 64 * 10**6
_BUILT_BYTES = 4
"""Bytes of a number that a network is built with: float32."""


def byte_budget(file_bytes: int) -> int:
    """Return the most bytes that the tensors of a file of this size may take together."""
    return _EXPANSION * file_bytes + _ALWAYS_ALLOWED


def check_budget(tensors: Iterable[Tensor], file_bytes: int, path: Path) -> None:
    """Check how much memory all tensors of a file take together once they are built.

    Tensors may be views of one storage, or one tensor under many keys: each is counted, floating
    point as float32.

    Args:
        tensors: Those of the whole file.
        file_bytes: Size of the file, or of all shards.
        path: The file, for the message.

    Raises:
        CheckpointError: They take more than `byte_budget`.
    """
    total = 0
    for value in tensors:
        width = value.element_size()
        total += value.numel() * (max(width, _BUILT_BYTES) if value.is_floating_point() else width)
    limit = byte_budget(file_bytes)
    if total > limit:
        raise CheckpointError(
            f"{path} has {file_bytes} bytes and its tensors would take {total}, expected at most "
            f"{limit} ({_EXPANSION} times the file and 64 MB): they repeat the same numbers. Save "
            "the state dict of the network alone with safetensors.torch.save_file"
        )


def check_tensors(state: Mapping[str, Tensor], path: Path) -> None:
    """Check that tensors are plain and finite.

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
    return ""


def _finite(value: Tensor) -> bool:
    if not (value.is_floating_point() or value.is_complex()):
        return True
    wide = value.float() if value.element_size() == 1 else value
    return bool(torch.isfinite(wide).all())
