"""Folders split into pieces for separate transfers, and joined after arrival.

A bundle is a folder, packed as one ``.tar.xz`` and cut. A piece is a folder of its part and of
``piece.json``, which says which bundle it is of, its number among how many, and its SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LARGEST = 56 * 10**6
"""Bytes of a piece."""

RECORD, PART = "piece.json", "part"


class PieceError(Exception):
    """A piece is missing or damaged."""


def cut(folder: Path, target: Path, about: dict[str, Any], largest: int = LARGEST) -> list[Path]:
    """Pack a folder and split it into pieces.

    Args:
        folder: The bundle; its name is that of the bundle.
        target: Gets a folder a piece, ``<bundle>-<number>of<count>``; older ones of the bundle go.
        about: What else each piece's record says.
        largest: Bytes of a piece.

    Returns:
        The pieces' folders.
    """
    target.mkdir(parents=True, exist_ok=True)
    archive = target / f"{folder.name}.tar.xz"
    with tarfile.open(archive, "w:xz", preset=3) as tar:
        for file in sorted(folder.rglob("*")):
            tar.add(file, file.relative_to(folder), recursive=False)
    for old in target.glob(f"{folder.name}-*of*"):
        shutil.rmtree(old)
    size = archive.stat().st_size
    count = max(1, -(-size // largest))
    pieces = []
    with archive.open("rb") as stream:
        for number in range(1, count + 1):
            piece = target / f"{folder.name}-{number}of{count}"
            piece.mkdir()
            data = stream.read(-(-size // count))
            (piece / PART).write_bytes(data)
            record = {
                **about,
                "bundle": folder.name,
                "number": number,
                "count": count,
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
            (piece / RECORD).write_text(json.dumps(record, indent=1) + "\n")
            pieces.append(piece)
    archive.unlink()
    return pieces


def find(folder: Path) -> list[Path]:
    """The pieces in a folder: the folder itself, or folders in it."""
    if (folder / RECORD).is_file():
        return [folder]
    return sorted(file.parent for file in folder.glob(f"*/{RECORD}"))


def keep(folders: Iterable[Path], store: Path) -> list[dict[str, Any]]:
    """Copy pieces into a store, where they remain for later transfers.

    Returns:
        Their records; ``reason`` in those that were not kept.
    """
    records = []
    for piece in (piece for folder in folders for piece in find(folder)):
        record = json.loads((piece / RECORD).read_text())
        part = piece / PART
        if not part.is_file() or _sha256(part) != record["sha256"]:
            records.append({**record, "reason": f"{piece} is not what was packed: carry it again"})
            continue
        kept = store / "pieces" / f"{record['bundle']}-{record['number']}of{record['count']}"
        if not (kept / RECORD).is_file():
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir(parents=True)
            shutil.copyfile(part, kept / PART)
            shutil.copyfile(piece / RECORD, kept / RECORD)
        records.append(record)
    return records


def whole(bundle: str, store: Path) -> Path:
    """Return the unpacked folder of a bundle whose pieces are all in the store.

    Raises:
        PieceError: A piece is missing, or pieces are of different packings.
    """
    folder = store / bundle
    if (store / f"{bundle}.whole").is_file():
        return folder
    kept = {piece: json.loads((piece / RECORD).read_text()) for piece in find(store / "pieces")}
    own = {piece: record for piece, record in kept.items() if record["bundle"] == bundle}
    if not own:
        raise PieceError(f"no piece of {bundle} is here: carry {bundle}-1of..., then run again")
    counts = {record["count"] for record in own.values()}
    if len(counts) > 1 or len({record.get("packed") for record in own.values()}) > 1:
        raise PieceError(f"the pieces of {bundle} are of several packings: remove {store}/pieces")
    count = counts.pop()
    present = {record["number"] for record in own.values()}
    missing = [f"{bundle}-{n}of{count}" for n in range(1, count + 1) if n not in present]
    if missing:
        raise PieceError(f"missing of {bundle}: {', '.join(missing)}")
    shutil.rmtree(folder, ignore_errors=True)
    archive = store / f"{bundle}.tar.xz"
    with archive.open("wb") as stream:
        for piece in sorted(own, key=lambda piece: own[piece]["number"]):
            with (piece / PART).open("rb") as part:
                shutil.copyfileobj(part, stream)
    with tarfile.open(archive) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.2
        tar.extractall(folder)
    archive.unlink()
    (store / f"{bundle}.whole").touch()
    return folder


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
