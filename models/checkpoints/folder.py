"""Reads the folders in which Hugging Face's libraries save a network: one file, or shards."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...core.errors import CheckpointError
from ...core.files.reading import file_sha256
from ...core.json_text import read_json

_STEMS = ("model", "diffusion_pytorch_model", "pytorch_model")
_FILES = tuple(f"{stem}.{kind}" for stem in _STEMS for kind in ("safetensors", "bin"))
_INDEX = ".index.json"
_ANY_INDEX = re.compile(r"\.index(\.\w+)?\.json")
_KINDS = (("safetensors",), ("pth", "pt", "ckpt", "bin"))
_OF_TRAINING = re.compile(
    r"(optimizer|scheduler|scaler|random_states|rng_state|training_args|custom_checkpoint|zero_pp)"
)
_CONFIG = "config.json"
_MAX_SHARDS = 1000
_MAX_ENTRIES = 1000
_DEEPEST = 2


def is_index(path: Path) -> bool:
    """Whether a file lists the shards of a network."""
    return bool(_ANY_INDEX.search(path.name))


def files_of(path: Path) -> tuple[Path, list[Path]]:
    """Return the folder of a network and its files, which may be shards.

    Args:
        path: The folder, or the index in it.

    Raises:
        CheckpointError: The folder has no file of a known name, and not exactly one index, file of
            safetensors, other checkpoint, or folder with one; or the index is damaged or names
            something else than files beside it.
    """
    if is_index(path):
        return path.parent, _shards(path)
    files = _checkpoints(path, 0)
    if len(files) != 1:
        first = [str(file.relative_to(path)) for file in files[:5]]
        listed = ", ".join(first) + ", ..." * (len(files) > len(first)) or "no checkpoint"
        raise CheckpointError(
            f"the checkpoint {path} is a folder with {listed}; expected one of Hugging Face's "
            f"({', '.join(_FILES[:2])}, ..., or their {_INDEX.lstrip('.')}), or one file: give "
            "the path of the file"
        )
    (chosen,) = files
    return chosen.parent, _shards(chosen) if is_index(chosen) else [chosen]


def _checkpoints(folder: Path, depth: int) -> list[Path]:
    """Return the file that a folder is meant to be: several or none if that is not clear."""
    present = [folder / f"{name}{_INDEX}" for name in _FILES] + [folder / name for name in _FILES]
    for file in present:
        if file.is_file():
            return [file]
    entries = sorted(itertools.islice(folder.iterdir(), _MAX_ENTRIES))
    if indexes := [file for file in entries if is_index(file)]:
        return indexes
    weights = [file for file in entries if not _OF_TRAINING.match(file.name) and not file.is_dir()]
    for kinds in _KINDS:
        files = [file for file in weights if file.suffix[1:].lower() in kinds]
        if files:
            return files
    if depth == _DEEPEST:
        return []
    inner = [entry for entry in entries if entry.is_dir() and not entry.is_symlink()]
    return [file for each in inner for file in _checkpoints(each, depth + 1)]


def _shards(index: Path) -> list[Path]:
    """Return the files that an index names; only plain names, of files beside it, are accepted."""
    content = _json(index, "the index")
    places = content.get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CheckpointError(f"{index} has no 'weight_map' of tensors; expected one of shards")
    names = list(dict.fromkeys(name if isinstance(name, str) else "" for name in places.values()))
    for name in names:
        is_name = name not in ("", ".", "..") and not {"/", "\\", "\0", ":"} & set(name)
        if not is_name or not name.isprintable() or is_index(Path(name)):
            raise CheckpointError(
                f"{index} names the shard {name!r:.80}; expected the plain name of a file beside it"
            )
    if len(names) > _MAX_SHARDS:
        raise CheckpointError(f"{index} names {len(names)} shards, expected {_MAX_SHARDS} at most")
    return [index.parent / name for name in names]


def config_of(folder: Path) -> dict[str, Any]:
    """Return ``config.json`` of a folder, {} if there is none.

    Raises:
        CheckpointError: It is not a JSON object.
    """
    path = folder / _CONFIG
    return _json(path, "the configuration") if path.is_file() else {}


def _json(path: Path, what: str) -> dict[str, Any]:
    content = read_json(path, what, CheckpointError)
    if not isinstance(content, dict):
        raise CheckpointError(f"{what} {path} is not a JSON object")
    return content


def join_shards(parts: Iterator[tuple[Path, Any]]) -> dict[str, Any]:
    """Return the tensors of all shards.

    Raises:
        CheckpointError: A shard is not a state dict, or two hold the same key.
    """
    tensors: dict[str, Any] = {}
    for path, content in parts:
        if not isinstance(content, dict):
            raise CheckpointError(f"{path} is not the shard of a state dict")
        twice = tensors.keys() & content.keys()
        if twice:
            raise CheckpointError(f"{path} holds {min(twice)!r:.80}, as another shard does")
        tensors |= content
    return tensors


def sha256_of(files: list[Path]) -> str:
    """Return the SHA-256 of a file, or of the names and digests of several."""
    if len(files) == 1:
        return file_sha256(files[0], "the checkpoint", CheckpointError)
    lines = [
        f"{file_sha256(file, 'the checkpoint', CheckpointError)}  {file.name}\n" for file in files
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
