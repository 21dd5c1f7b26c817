"""Recorded references: inputs and PyTorch's outputs, to check a file without PyTorch.

The file is an ``.npz`` with the arrays ``size<k>.input.<name>`` (float32, other integers as they
are, or uint8 for images stored in 8 bits, to be divided by 255), ``size<k>.output.<name>``
(float32), and ``meta``, the UTF-8 bytes of a JSON object. Nothing in it is ever unpickled.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...core.arrays import Array
from ...core.errors import NystraError
from ...core.files.kinds import HEAD, file_kind
from ...core.files.reading import is_there, regular_file
from ...core.files.writing import atomic_write_bytes
from ...core.json_text import MAXIMUM_BYTES, parse_json, stable_json
from ...core.text import first_repeated

RECORDED_METADATA = "metadata"
"""The key of the meta that holds the model file's metadata."""

TOLERANCES_IN = "tolerances_in"
"""The key of the meta that holds tolerances for other precisions of a backend: precision -> one
number per case."""

MEAN_TOLERANCES_IN = "mean_tolerances_in"
"""The same for mean differences, where they are checked."""

FURTHER = "further_outputs"
"""The key of the meta that holds, by name, the tolerances of all outputs but the first, under the
same keys as those of the first."""

_DECIDING = (
    *("tolerances", "mean_tolerances", TOLERANCES_IN, MEAN_TOLERANCES_IN),
    *("roles", "precision", FURTHER),
)
"""Keys of the meta that hold tolerances."""

_KEY = re.compile(r"size(\d{1,6})\.(input|output)\.(.+)")
_LIMIT = 2 << 30
_BLOCK = 1 << 20
_MAX_ARRAYS = 10_000
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UNREADABLE = (
    *(OSError, ValueError, KeyError, EOFError, RuntimeError, OverflowError),
    *(zipfile.BadZipFile, zlib.error),
)
"""What zipfile and numpy raise for damaged files; RuntimeError for an archive of a later
version."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class ReferenceCase:
    """One recorded run.

    Attributes:
        inputs: Input name -> array; uint8 stands for value / 255.
        outputs: Output name -> array in float32.
    """

    inputs: dict[str, Array]
    outputs: dict[str, Array]

    def feeds(self) -> dict[str, Array]:
        """Return the inputs as the model takes them: uint8 as float32 in 0..1."""
        return {
            name: np.divide(array, np.float32(255), dtype=np.float32)
            if array.dtype == np.uint8
            else array
            for name, array in self.inputs.items()
        }


@dataclass(frozen=True)
class References:
    """All recorded runs of a model.

    Attributes:
        cases: One for each size.
        meta: Data recorded with them; ``tolerances`` has one number per case, if present.
    """

    cases: tuple[ReferenceCase, ...]
    meta: dict[str, Any] = field(default_factory=dict)

    def digest(self) -> str:
        """Return the SHA-256 of everything that decides whether a file passes: arrays, tolerances.

        Versions of programs and the metadata under `RECORDED_METADATA` are left out.
        """
        deciding = {key: self.meta[key] for key in _DECIDING if key in self.meta}
        digest = hashlib.sha256(stable_json(deciding))
        for case in self.cases:
            for kind, arrays in (("input", case.inputs), ("output", case.outputs)):
                for name, array in sorted(arrays.items()):
                    head = [kind, name, str(array.dtype), list(array.shape)]
                    digest.update(stable_json(head))
                    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()


def write_references(
    path: str | os.PathLike[str], cases: Sequence[ReferenceCase], meta: Mapping[str, Any]
) -> None:
    """Write references.

    Raises:
        NystraError: There are no cases, or the file cannot be written.
    """
    atomic_write_bytes(path, references_content(cases, meta))


def references_content(cases: Sequence[ReferenceCase], meta: Mapping[str, Any]) -> bytes:
    """Return the file of references: the same content gives the same bytes.

    Raises:
        NystraError: There are no cases.
    """
    if not cases:
        raise NystraError("got no cases to record, expected one or more")
    arrays: dict[str, Array] = {}
    for index, case in enumerate(cases):
        for name, array in case.inputs.items():
            stored = array if array.dtype.kind in "iu" else array.astype(np.float32)
            arrays[f"size{index}.input.{name}"] = stored
        for name, array in case.outputs.items():
            arrays[f"size{index}.output.{name}"] = array.astype(np.float32)
    arrays["meta"] = np.frombuffer(stable_json(meta), dtype=np.uint8)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as target:
        for name in sorted(arrays):
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            content = io.BytesIO()
            array = np.ascontiguousarray(arrays[name])
            np.lib.format.write_array(content, array, version=(1, 0), allow_pickle=False)
            target.writestr(entry, content.getvalue())
    return archive.getvalue()


def read_references(path: str | os.PathLike[str]) -> References:
    """Read recorded references.

    Raises:
        NystraError: The file is missing, damaged, too large (2 GiB) or not written by nystra.
    """
    if not is_there(path, "the references"):
        raise NystraError(
            f"no recorded references at {path}: export the model again, or validate against its "
            "checkpoint"
        )
    file = regular_file(path, "the references")
    with file.open("rb") as stream:
        kind = file_kind(stream.read(HEAD))
    if kind is not None:
        raise NystraError(f"the references {path} are not written by nystra: it is {kind}")
    return read_content(file, f"the references {path}")


def read_content(file: Path | IO[bytes], where: str) -> References:
    """Read references from a file, or from one in memory.

    Args:
        file: The file.
        where: Names it for messages.

    Raises:
        NystraError: It is damaged, too large (2 GiB) or not written by nystra.
    """
    try:
        arrays = _read_arrays(file)
        meta = arrays.pop("meta")
        if meta.nbytes > MAXIMUM_BYTES:
            raise ValueError(f"their meta has {meta.nbytes >> 20} MiB")
        about = parse_json(meta.tobytes(), f"the meta of {where}")
    except _UNREADABLE as error:
        raise NystraError(
            f"{where} are damaged or not written by nystra ({error}): export again"
        ) from error
    return References(_cases(where, arrays), about if isinstance(about, dict) else {})


def _read_arrays(file: Path | IO[bytes]) -> dict[str, Array]:
    """Return the arrays of an archive by name; memory is taken for what their headers allow."""
    arrays: dict[str, Array] = {}
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        remaining = _LIMIT
        if len(entries) > _MAX_ARRAYS:
            raise ValueError(f"they hold {len(entries)} arrays, expected {_MAX_ARRAYS} or fewer")
        twice = first_repeated([entry.filename for entry in entries])
        if twice is not None:
            raise ValueError(f"they hold {twice!r:.80} more than once")
        _check_size(sum(entry.file_size for entry in entries), remaining)
        for entry in entries:
            if entry.flag_bits & 1 or entry.compress_type not in _COMPRESSIONS:
                raise ValueError(
                    f"{entry.filename} is encrypted, or compressed by an unknown method"
                )
            if not entry.filename.endswith(".npy"):
                raise ValueError(f"{entry.filename} is no array")
            with archive.open(entry) as stream:
                array, size = _array(stream, entry.file_size, remaining)
            remaining -= size
            arrays[entry.filename.removesuffix(".npy")] = array
    return arrays


def _check_size(size: int, remaining: int) -> None:
    if size > remaining:
        raise ValueError(f"they unpack to {(_LIMIT - remaining + size) >> 20} MiB or more")


def _array(stream: IO[bytes], size: int, remaining: int) -> tuple[Array, int]:
    """Return the array of a .npy file of ``size`` bytes, and its bytes, at most ``remaining``."""
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array is not in version 1.0 of the format")
    try:
        shape, by_column, dtype = np.lib.format.read_array_header_1_0(stream)
    except Exception as error:  # numpy runs Python's tokenizer on it, which raises at will
        raise ValueError(f"the header of an array cannot be read: {error}") from error
    if dtype.kind not in "fui":
        raise ValueError(f"an array holds {dtype}, expected numbers")
    count, body = math.prod(shape), size - stream.tell()
    if count * dtype.itemsize != body:
        raise ValueError(f"an array of shape {shape} and {dtype} has {body} bytes")
    needed = count * max(dtype.itemsize, 4)  # 8-bit inputs become float32
    _check_size(needed, remaining)
    array = np.empty(count, dtype)
    place = array.view(np.uint8).data
    while len(place) and (block := stream.read(min(len(place), _BLOCK))):
        place[: len(block)] = block
        place = place[len(block) :]
    if len(place) or stream.read(1):  # the end of the stream is where its checksum is tested
        raise ValueError(f"an array of shape {shape} and {dtype} does not have {body} bytes")
    return array.reshape(shape, order="F" if by_column else "C"), needed


def _cases(where: str, arrays: Mapping[str, Array]) -> tuple[ReferenceCase, ...]:
    by_number: dict[int, ReferenceCase] = {}
    for key, array in arrays.items():
        match = _KEY.fullmatch(key)
        if match is None:
            raise NystraError(f"{where} hold {key!r} ({array.dtype}), which nystra does not write")
        case = by_number.setdefault(int(match[1]), ReferenceCase({}, {}))
        (case.inputs if match[2] == "input" else case.outputs)[match[3]] = array
    cases = tuple(by_number[index] for index in sorted(by_number))
    if not cases or not all(case.inputs and case.outputs for case in cases):
        raise NystraError(f"{where} are incomplete: export the model again")
    return cases
