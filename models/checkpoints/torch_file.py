"""Reads the files that ``torch.save`` writes, and wrote before PyTorch 1.6, by our own means."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import torch

from ...core.errors import CheckpointError
from ...core.files.kinds import HEAD
from ...core.text import first_repeated
from .other_files import archive_kind, checkpoint_kind
from .pickle_values import LimitError, RunsCodeError, read_pickle
from .rebuilding import Rebuilder, Storage, storage_dtype
from .tensor_checks import byte_budget

MAX_BYTES = 16 * 1024**3
_LARGEST_PICKLE = 1 << 28
_MAX_RECORDS = 200_000  # of an archive
_ZIP = b"PK\x03\x04"
_LEGACY = bytes.fromhex("6cfc9c46f9206aa85019")  # a number that the first pickle holds
_FAULTS = (
    *(ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error, EOFError),
    *(MemoryError, RuntimeError, zipfile.BadZipFile, NotImplementedError),
)
"""What a damaged or hostile file raises while it is read."""


def read_torch(path: Path) -> Any:
    """Return the content of a file: dictionaries, lists, tensors, and stand-ins for all else.

    Raises:
        CheckpointError: It is another kind of file, damaged, a bomb, or wants to run code.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(HEAD)
        file.seek(0)
        kind = checkpoint_kind(path, head)
        if kind:
            raise CheckpointError(f"{path} is not a checkpoint that nystra reads: it is {kind}")
        try:
            if head.startswith(_ZIP):
                return _read_archive(path, file)
            if _LEGACY in head[:32]:
                return _read_legacy(file, path.stat().st_size)
            read_pickle(file)
        except RunsCodeError as error:
            raise CheckpointError(
                f"{path} is refused: its pickle runs code ({error!s:.80}) in programs that load it "
                "as PyTorch does without weights_only. nystra reads tensors only; do not load this "
                "file unless you trust the source; see docs/security.md"
            ) from error
        except LimitError as error:
            raise CheckpointError(
                f"{path} is not a checkpoint that nystra reads: it {error}. Save the state dict of "
                "the network alone with safetensors.torch.save_file"
            ) from error
        except _FAULTS as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise CheckpointError(
                f"{path} is not a checkpoint that PyTorch can read, or it is truncated: {reason}"
            ) from error
    raise CheckpointError(
        f"{path} is not a checkpoint that PyTorch can read: it is a pickle that torch.save did not "
        "write. Save its tensors by name with safetensors.torch.save_file"
    )


def _read_archive(path: Path, file: BinaryIO) -> Any:
    if _records(file, path.stat().st_size) > _MAX_RECORDS:
        raise CheckpointError(
            f"{path} is an archive of more than {_MAX_RECORDS} files, expected a checkpoint"
        )
    try:
        archive = zipfile.ZipFile(file)
        unpacked = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
        raise CheckpointError(
            f"{path} is a broken zip archive: {error}: get it again from its source"
        ) from error
    if unpacked > min(MAX_BYTES, byte_budget(path.stat().st_size)):
        raise CheckpointError(
            f"{path} is refused as a zip bomb: {path.stat().st_size} bytes would unpack to "
            f"{unpacked}; PyTorch writes checkpoints uncompressed; see docs/security.md"
        )
    with archive:
        names = archive.namelist()
        twice = first_repeated(names)
        if twice is not None:
            raise CheckpointError(
                f"{path} holds {twice!r:.80} more than once, and programs differ in which they "
                "read: get the file again from its source"
            )
        kind = archive_kind(path, names)
        if kind:
            raise CheckpointError(f"{path} is not a checkpoint that nystra reads: it is {kind}")
        root = names[0].partition("/")[0] + "/"
        content = f"{root}data.pkl"
        if archive.getinfo(content).file_size > _LARGEST_PICKLE:
            raise LimitError(f"has a pickle of more than {_LARGEST_PICKLE} bytes")
        order = f"{root}byteorder"
        if order in names and archive.read(order) != b"little":
            raise LimitError("was written on a machine of another byte order")
        storages = _ArchiveStorages(archive, root)
        return read_pickle(
            io.BytesIO(archive.read(content)), Rebuilder().rebuild, storages.persistent
        )


def _records(file: BinaryIO, size: int) -> int:
    file.seek(max(0, size - 66_000))
    end = file.read()
    file.seek(0)
    place = end.rfind(b"PK\x05\x06")
    if place < 0 or len(end) < place + 22:
        return 0
    count, length = struct.unpack_from("<HI", end, place + 10)
    wide = end.rfind(b"PK\x06\x06")
    if 0 <= wide <= len(end) - 40:
        count, length = struct.unpack_from("<QQ", end, wide + 32)
    return max(int(count), int(length) // 128 if length != 0xFFFFFFFF else 0)


class _ArchiveStorages:
    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        self.archive, self.root = archive, root
        self.read: dict[str, torch.Tensor] = {}

    def persistent(self, identifier: Any) -> Any:
        kind, key, count = _storage_facts(identifier)
        if key not in self.read:
            self.read[key] = self._data(f"{self.root}data/{key}")
        return _storage(self.read[key], kind, count)

    def _data(self, name: str) -> torch.Tensor:
        size = self.archive.getinfo(name).file_size
        data = bytearray(size)
        with self.archive.open(name) as file:
            _read_into(file, data)
        return torch.frombuffer(data, dtype=torch.uint8) if size else torch.empty(0).byte()


def _read_legacy(file: BinaryIO, size: int) -> Any:
    for _ in range(2):  # a number that marks such files, and the version of the format
        read_pickle(file)
    system = read_pickle(file)
    if not isinstance(system, dict) or system.get("little_endian") is False:
        raise LimitError("was written on a machine of another byte order")
    storages: dict[str, tuple[bytearray, torch.Tensor]] = {}
    remaining = size

    def persistent(identifier: Any) -> Any:
        nonlocal remaining
        if isinstance(identifier, tuple) and identifier[:1] == ("module",):
            return identifier[1]  # a class, with its source
        kind, key, count = _storage_facts(identifier)
        dtype = storage_dtype(kind)
        if key not in storages:
            length = count * (dtype.itemsize if dtype is not None else 1)
            remaining -= length
            if remaining < 0:
                raise ValueError("it ends within its tensors")
            data = bytearray(length)
            values = torch.frombuffer(data, dtype=torch.uint8) if length else torch.empty(0).byte()
            storages[key] = data, values
        return _storage(storages[key][1], kind, count)

    content = read_pickle(file, Rebuilder().rebuild, persistent)
    keys = read_pickle(file)
    for key in keys if isinstance(keys, list) else ():
        count = struct.unpack("<q", file.read(8))[0]
        data = storages[str(key)][0]
        if count < 0 or len(data) % max(count, 1):
            raise ValueError(f"a storage of {len(data)} bytes has {count} elements")
        _read_into(file, data)
        del storages[str(key)]
    if storages:
        raise ValueError(f"it lacks {len(storages)} of its storages")
    return content


def _storage_facts(identifier: Any) -> tuple[Any, str, int]:
    if not isinstance(identifier, tuple) or len(identifier) < 5 or identifier[0] != "storage":
        raise ValueError("its pickle refers to something that is not a storage")
    _, kind, key, _, count = identifier[:5]
    if type(key) is not str or type(count) is not int or not 0 <= count < MAX_BYTES:
        raise ValueError("its pickle refers to a storage without a key or a length")
    if len(identifier) > 5 and identifier[5] is not None:
        raise LimitError("has storages that are parts of others, as before PyTorch 0.4")
    return kind, key, count


def _storage(data: torch.Tensor, kind: Any, count: int) -> Storage:
    dtype = storage_dtype(kind)
    if dtype is not None and data.numel() < count * dtype.itemsize:
        raise ValueError(f"a storage has {data.numel()} bytes, expected {count} elements")
    return Storage(data, dtype)


def _read_into(file: Any, data: bytearray) -> None:
    view = memoryview(data)
    while view:
        count = file.readinto(view)
        if not count:
            raise ValueError("it ends within its tensors")
        view = view[count:]
