"""Reading checkpoint files without executing what is in them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from ...core.errors import CheckpointError
from ...core.files.reading import regular_file
from .containers import ANY_NETWORK, Criteria, find_network
from .folder import config_of, files_of, is_index, join_shards, sha256_of
from .safetensors_file import is_safetensors, read_safetensors
from .tensor_checks import check_tensors
from .torch_file import MAX_BYTES, read_torch

CHOSEN = "state_dict"
"""The hyper-parameter that names one of several networks in a file."""


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a checkpoint file.

    Attributes:
        path: The file or folder.
        sha256: SHA-256 of the file, or of the digests of its shards.
        state: State-dict key to tensor, wrapper and prefix removed.
        wrapper: The keys around the state dict, joined by ``/``, or "".
        hyper: Hyper-parameters from the JSON under ``nystra`` in safetensors metadata.
        notes: Choices and omissions, one sentence each.
        config: Content of ``config.json``, if it was read from a folder.
    """

    path: Path
    sha256: str
    state: dict[str, Tensor]
    wrapper: str = ""
    hyper: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    config: dict[str, Any] = field(default_factory=dict)


def read_checkpoint(
    path: str | Path, criteria: Criteria = ANY_NETWORK, chosen: str | None = None
) -> Checkpoint:
    """Read a ``.safetensors`` file, a file of ``torch.save``, or a folder of Hugging Face's.

    Args:
        path: The file, the folder, or the index of its shards.
        criteria: The network that is searched for in it: by default any that is known.
        chosen: The name of one of several networks in the file.

    Returns:
        The tensors by their state-dict key. Whatever is around the network (dictionaries, prefixes,
        wrappers of PyTorch, tensors of the training) is removed.

    Raises:
        CheckpointError: No such file, no regular file, not a checkpoint, truncated, a pickle that
            wants to run code, a zip bomb, no tensors, several networks, or tensors that are not
            plain and finite or would take much more memory than the file.
    """
    path = Path(path)
    config: dict[str, Any] = {}
    if os.path.isdir(path) or is_index(path):
        path, files = files_of(path)
        config = config_of(path)
    else:
        files = [path]
    try:
        files = [regular_file(file, "the checkpoint", CheckpointError) for file in files]
        file_bytes = _total_size(files)
        digest = sha256_of(files)
        content, hyper = _content(files)
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(f"cannot read the checkpoint {path}: {reason}") from error
    state, wrapper, notes = find_network(content, path, file_bytes, criteria, chosen)
    check_tensors(state, path)
    return Checkpoint(path, digest, state, wrapper, hyper, notes, config)


def _total_size(files: list[Path]) -> int:
    sizes = {file: file.stat().st_size for file in files}
    for file, size in sizes.items():
        if size == 0:
            raise CheckpointError(f"{file} is empty: the download or copy did not finish")
    if sum(sizes.values()) > MAX_BYTES:
        raise CheckpointError(
            f"{files[0]} has {sum(sizes.values())} bytes; expected a checkpoint of "
            f"{MAX_BYTES >> 30} GiB at most"
        )
    return sum(sizes.values())


def _content(files: list[Path]) -> tuple[Any, dict[str, Any]]:
    if len(files) > 1:
        return join_shards((file, _content([file])[0]) for file in files), {}
    (file,) = files
    return read_safetensors(file) if is_safetensors(file) else (read_torch(file), {})
