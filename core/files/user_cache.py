"""What nystra keeps for a user between processes: engines, exported files, measured figures."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import NystraError
from ..json_text import is_number, read_json, stable_json
from .ownership import is_trusted
from .reading import file_sha256
from .writing import atomic_path, atomic_write_bytes

CACHE_VARIABLE = "NYSTRA_CACHE_DIR"
"""The environment variable for the folder of the cache; default: ``nystra`` in the user's cache
folder."""


def home() -> Path:
    """Return the folder of everything that nystra keeps for a user; it may not exist yet.

    Raises:
        NystraError: The user has no home folder, and no variable names another one.
    """
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own)
    user = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if user.is_absolute():  # its specification: relative ones are to be ignored
        return user / "nystra"
    try:
        return Path.home() / ".cache" / "nystra"
    except RuntimeError as error:
        raise NystraError(
            f"this user has no home folder: set {CACHE_VARIABLE} to a folder for what nystra keeps"
        ) from error


def put_file(folder: Path, key: str, file: Path, suffix: str) -> tuple[Path, str]:
    """Copy a file into a folder, with its key and hash in the name.

    A record that names the file is moved into place after it: a concurrent reader gets the old pair
    or the new one.

    Returns:
        The path there, and the SHA-256.

    Raises:
        NystraError: The folder cannot be written.
    """
    digest = file_sha256(file)
    target = folder / f"{key}.{digest[:16]}{suffix}"
    with atomic_path(target) as temporary:
        shutil.copyfile(file, temporary)
    return target, digest


def read_record(path: Path) -> Mapping[str, Any]:
    """Return a record; empty if it is missing, damaged or not of this user."""
    if not is_trusted(path):
        return {}
    try:
        document = read_json(path, "the record")
    except NystraError:
        return {}
    return document if isinstance(document, dict) else {}


def write_record(path: Path, document: Mapping[str, Any]) -> None:
    """Write a record; its folder is created.

    Raises:
        NystraError: It cannot be written.
    """
    atomic_write_bytes(path, stable_json(document))


def key_of(parts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of everything that an entry depends on."""
    return hashlib.sha256(stable_json(parts)).hexdigest()


def read_figures(key: str) -> dict[str, float]:
    """Return the figures that `remember_figures` kept for a key; empty if there are none."""
    try:
        document = read_record(_figures(key))
    except NystraError:
        return {}
    figures = document.get("figures") if document.get("key") == key else None
    if not isinstance(figures, dict):
        return {}
    return figures if all(is_number(one) and one > 0 for one in figures.values()) else {}


def remember_figures(key: str, of: str, figures: Mapping[str, float]) -> bool:
    """Keep measured figures for a key; return whether the cache could be written.

    Args:
        key: From `key_of`.
        of: What was measured, for people who read the file.
        figures: Figures by name, such as seconds; those of 0 or less are measured again.
    """
    try:
        write_record(_figures(key), {"key": key, "of": of, "figures": figures})
    except NystraError:
        return False
    return True


def _figures(key: str) -> Path:
    return home() / "figures" / f"{key}.json"
