"""Reading checkpoint files without executing what is in them."""

from __future__ import annotations

import hashlib
import json
import pickletools
import re
import struct
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..plugins.errors import CheckpointError

_WRAPPERS = ("params_ema", "params", "state_dict", "model_state_dict", "model", "net")
_PREFIXES = ("module.", "_orig_mod.")
_MAXIMUM_EXPANSION = 200  # a zip whose members unpack to more times its size is a bomb
_MAXIMUM_BYTES = 16 * 1024**3


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a checkpoint file.

    Attributes:
        path: the file.
        sha256: of the file's bytes.
        state: state-dict key to tensor, wrapper and prefix removed.
        wrapper: the key the state dict stood under, or "".
        hyper: hyper-parameters from the JSON under ``nystra`` in safetensors metadata.
    """

    path: Path
    sha256: str
    state: dict[str, Tensor]
    wrapper: str = ""
    hyper: dict[str, Any] = field(default_factory=dict)


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read ``.safetensors``, or a PyTorch file with ``weights_only=True``.

    Returns:
        The tensors by their state-dict key. Wrapper keys (``params_ema``, ``params``,
        ``state_dict``, ...) and the prefix ``module.`` are removed.

    Raises:
        CheckpointError: no such file, not a checkpoint, truncated, a pickle that wants to run
            code, a zip bomb, no tensors, or values that are not finite.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise CheckpointError(f"{path} {what}: give a .safetensors, .pth or .pt file")
    if path.stat().st_size == 0:
        raise CheckpointError(f"{path} is empty: the download or copy did not finish")
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if _is_safetensors(path):
        content, hyper = _read_safetensors(path)
    else:
        content, hyper = _read_torch(path), {}
    state, wrapper = _unwrap(content, path)
    _refuse_nonfinite(state, path)
    return Checkpoint(path, digest.hexdigest(), state, wrapper, hyper)


def _is_safetensors(path: Path) -> bool:
    if path.suffix == ".safetensors":
        return True
    with path.open("rb") as file:
        head = file.read(9)
    return len(head) == 9 and head[8:] == b"{" and struct.unpack("<Q", head[:8])[0] < 1 << 27


def _read_safetensors(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not a whole safetensors file: {error}") from error
    try:
        hyper = json.loads(metadata.get("nystra", "{}"))
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}: its metadata 'nystra' is not JSON: {error}") from error
    if not isinstance(hyper, dict):
        raise CheckpointError(f"{path}: its metadata 'nystra' is not a JSON object")
    return tensors, hyper


def _read_torch(path: Path) -> Any:
    _refuse_bomb(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises what the file provokes: any of it is a bad file
        text = str(error)
        wanted = _foreign_object(path, text)
        if wanted:
            raise CheckpointError(
                f"{path} is refused: besides tensors, its pickle asks to run code or build foreign "
                f"objects ({wanted}). nystra reads tensors only; if you trust the source, save its "
                "state dict with safetensors.torch.save_file"
            ) from error
        raise CheckpointError(
            f"{path} is not a checkpoint that PyTorch can read, or it is truncated: "
            f"{_first_line(text) or type(error).__name__}"
        ) from error


def _foreign_object(path: Path, message: str) -> str:
    """Return what a refused pickle asked for, or "" where it is no pickle at all."""
    named = re.search(r"(?:GLOBAL|global:?) ([\w.]+)", message)
    if named is not None:
        return named[1]
    try:  # a bare pickle that PyTorch's reader does not even start on
        for code, argument, _ in pickletools.genops(path.read_bytes()):
            if code.name in ("GLOBAL", "INST"):
                return str(argument)
            if code.name in ("STACK_GLOBAL", "REDUCE"):
                return "a function call"
    except (ValueError, IndexError, UnicodeDecodeError):
        pass
    return ""


def _first_line(text: str) -> str:
    return next((line.strip()[:200] for line in text.splitlines() if line.strip()), "")


def _refuse_bomb(path: Path) -> None:
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, OSError) as error:
        raise CheckpointError(f"{path} is a broken zip archive: {error}") from error
    if unpacked > min(_MAXIMUM_BYTES, _MAXIMUM_EXPANSION * path.stat().st_size):
        raise CheckpointError(
            f"{path} is refused as a zip bomb: {path.stat().st_size} bytes would unpack to "
            f"{unpacked}; PyTorch writes checkpoints uncompressed"
        )


def _unwrap(content: Any, path: Path) -> tuple[dict[str, Tensor], str]:
    wrapper = ""
    if isinstance(content, dict):
        for key in _WRAPPERS:
            if isinstance(content.get(key), dict):
                content, wrapper = content[key], key
                break
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds a {type(content).__name__}, not a state dict")
    state = {
        key: value
        for key, value in content.items()
        if isinstance(key, str) and isinstance(value, Tensor)
    }
    if not state:
        raise CheckpointError(
            f"{path} holds no tensors: its keys are {sorted(map(str, content))[:8]}"
        )
    for prefix in _PREFIXES:
        if all(key.startswith(prefix) for key in state):
            state = {key[len(prefix) :]: value for key, value in state.items()}
    return state, wrapper


def _refuse_nonfinite(state: dict[str, Tensor], path: Path) -> None:
    bad = [
        key
        for key, value in state.items()
        if value.is_floating_point() and not bool(torch.isfinite(value).all())
    ]
    if bad:
        raise CheckpointError(
            f"{path} holds NaN or infinite values in {len(bad)} tensors, first {bad[0]}: "
            "the training diverged or the file is damaged"
        )
