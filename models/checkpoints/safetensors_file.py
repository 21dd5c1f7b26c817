"""Reads ``.safetensors`` files."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from torch import Tensor

from ...core.errors import CheckpointError
from ...core.files.kinds import HEAD, file_kind
from ...core.files.reading import utf8_path
from ...core.json_text import parse_json
from .rebuilding import MAX_TENSORS

_LONGEST_HEADER = 1 << 27
_OF_TORCH = (b"PK\x03\x04", b"\x80\x02\x8a\nl\xfc")
"""First bytes of what ``torch.save`` writes."""


def is_safetensors(path: Path) -> bool:
    """Whether a file is to be read as one: by its suffix or its first bytes."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    begins = head[8:9] == b"{" and struct.unpack("<Q", head[:8])[0] < _LONGEST_HEADER
    if path.suffix == ".safetensors" and not begins:
        return not head.startswith(_OF_TORCH) and not file_kind(head)
    return begins


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors by key, and the JSON under ``nystra`` in the metadata.

    Raises:
        CheckpointError: The file is damaged or has too many tensors, or its JSON is not an object.
        OSError: It cannot be read.
    """
    from safetensors import safe_open

    place = utf8_path(path, "the checkpoint", "safetensors")
    try:
        with safe_open(place, framework="pt") as file:
            metadata = file.metadata() or {}
            keys = list(file.keys())
            if len(keys) > MAX_TENSORS:
                raise CheckpointError(
                    f"{path} holds {len(keys)} tensors, expected {MAX_TENSORS} at most"
                )
            tensors = {key: file.get_tensor(key) for key in keys}
    except (OSError, CheckpointError):
        raise
    except Exception as error:  # any error here means a bad file
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"{path} is not a complete safetensors file: {reason or type(error).__name__}: get it "
            "again from its source"
        ) from error
    hyper = parse_json(
        metadata.get("nystra", "{}"), f"{path}: its metadata 'nystra'", CheckpointError
    )
    if not isinstance(hyper, dict):
        raise CheckpointError(f"{path}: its metadata 'nystra' is not a JSON object")
    return tensors, hyper
