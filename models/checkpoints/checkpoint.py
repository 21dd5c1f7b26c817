"""Reading checkpoint files without executing what is in them."""

from __future__ import annotations

import pickletools
import re
import struct
import warnings
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...core.errors import CheckpointError
from ...core.files.reading import file_sha256, regular_file
from ...core.strict_json import parse_json
from .containers import Fits, unwrap
from .tensor_checks import check_tensors

_MAXIMUM_EXPANSION = 200  # a zip file that unpacks to more than this multiple of its size is a bomb
_MAXIMUM_BYTES = 16 * 1024**3
_MAGIC = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"%PDF", "a PDF document"),
    (b"<!DOCTYPE", "a web page: use the direct download link of the file"),
    (b"<html", "a web page: use the direct download link of the file"),
    (b"\x1f\x8b", "gzip-compressed: unpack it first"),
    (b"version https://git-l", "a Git LFS pointer: fetch the file itself"),
)


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a checkpoint file.

    Attributes:
        path: The file.
        sha256: SHA-256 of the file.
        state: State-dict key to tensor, wrapper and prefix removed.
        wrapper: The keys around the state dict, joined by ``/``, or "".
        hyper: Hyper-parameters from the JSON under ``nystra`` in safetensors metadata.
        notes: Choices and omissions, one sentence each.
    """

    path: Path
    sha256: str
    state: dict[str, Tensor]
    wrapper: str = ""
    hyper: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_checkpoint(path: str | Path, fits: Fits | None = None) -> Checkpoint:
    """Read ``.safetensors``, or a PyTorch file with ``weights_only=True``.

    Args:
        path: The file.
        fits: Returns whether a state dict has the keys of the wanted network; None: of any network
            that nystra or a library in its table supports.

    Returns:
        The tensors by their state-dict key; the wrappers and prefixes of the usual trainers
        (``params_ema``, ``state_dict``, ``net_g``, ``module.``, ...) are removed.

    Raises:
        CheckpointError: No such file, no regular file, not a checkpoint, truncated, a pickle that
            wants to run code, a zip bomb, no tensors, several networks, or tensors that are not
            plain and finite.
    """
    path = regular_file(path, "the checkpoint", CheckpointError)
    try:
        _refuse_size(path)
        digest = file_sha256(path, "the checkpoint", CheckpointError)
        if _is_safetensors(path):
            content, hyper = _read_safetensors(path)
        else:
            content, hyper = _read_torch(path), {}
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(f"cannot read the checkpoint {path}: {reason}") from error
    state, wrapper, notes = unwrap(content, path, fits)
    check_tensors(state, path)
    return Checkpoint(path, digest, state, wrapper, hyper, notes)


def _refuse_size(path: Path) -> None:
    """Raise if a file is empty, or larger than any checkpoint."""
    size = path.stat().st_size
    if size == 0:
        raise CheckpointError(f"{path} is empty: the download or copy did not finish")
    if size > _MAXIMUM_BYTES:
        raise CheckpointError(
            f"{path} has {size} bytes; expected a checkpoint of {_MAXIMUM_BYTES >> 30} GiB at most"
        )


def _is_safetensors(path: Path) -> bool:
    if path.suffix == ".safetensors":
        return True
    with path.open("rb") as file:
        head = file.read(9)
    return len(head) == 9 and head[8:] == b"{" and struct.unpack("<Q", head[:8])[0] < 1 << 27


def _read_safetensors(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    from safetensors import safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except OSError:
        raise
    except Exception as error:  # any error here means a bad file
        raise CheckpointError(
            f"{path} is not a complete safetensors file: {_first_line(str(error))}"
        ) from error
    hyper = parse_json(
        metadata.get("nystra", "{}"), f"{path}: its metadata 'nystra'", CheckpointError
    )
    if not isinstance(hyper, dict):
        raise CheckpointError(f"{path}: its metadata 'nystra' is not a JSON object")
    return tensors, hyper


def _read_torch(path: Path) -> Any:
    _refuse_bomb(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about tensors of kinds that are refused below
            return torch.load(path, map_location="cpu", weights_only=True)
    except PermissionError:
        raise
    except Exception as error:  # torch raises any kind of error for a bad file
        text = str(error)
        wanted = _foreign_object(path, text)
        if wanted:
            raise CheckpointError(
                f"{path} is refused: besides tensors, its pickle runs code or builds other "
                f"objects ({wanted}). nystra reads tensors only; if you trust the source, save "
                "its state dict with safetensors.torch.save_file; see docs/security.md"
            ) from error
        raise CheckpointError(
            f"{path} is not a checkpoint that PyTorch can read, or it is truncated: "
            f"{_kind(path) or _first_line(text) or type(error).__name__}"
        ) from error


def _foreign_object(path: Path, message: str) -> str:
    """Return the objects that a refused pickle requests, or "" if it is not a pickle."""
    named = re.search(r"GLOBAL ([\w.]+)", message) or re.search(r"global:? ([\w.]+)", message)
    if named is not None:
        return named[1]
    try:  # a bare pickle, which PyTorch's reader rejects at once
        for code, argument, _ in pickletools.genops(path.read_bytes()):
            if code.name in ("GLOBAL", "INST"):
                return str(argument)
            if code.name in ("STACK_GLOBAL", "REDUCE"):
                return "a function call"
    except (ValueError, IndexError, UnicodeDecodeError):
        pass
    return ""


def _kind(path: Path) -> str:
    """Return the kind of a file that is not a checkpoint, or "" if its first bytes are unknown."""
    with path.open("rb") as file:
        head = file.read(32)
    if path.suffix == ".onnx":
        return "it is an ONNX model; give the checkpoint that it was exported from"
    return next((f"it is {kind}" for magic, kind in _MAGIC if head.startswith(magic)), "")


def _first_line(text: str) -> str:
    """Return the first line of a foreign message, without its advice to load unsafely."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "" if not lines or "weights_only" in lines[0] else lines[0][:200]


def _refuse_bomb(path: Path) -> None:
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise CheckpointError(f"{path} is a broken zip archive: {error}") from error
    if unpacked > min(_MAXIMUM_BYTES, _MAXIMUM_EXPANSION * path.stat().st_size):
        raise CheckpointError(
            f"{path} is refused as a zip bomb: {path.stat().st_size} bytes would unpack to "
            f"{unpacked}; PyTorch writes checkpoints uncompressed; see docs/security.md"
        )
