"""Malicious references: refused in one sentence, within limits."""

import io
import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nystra.core.errors import NystraError
from nystra.runtime.checking.validation import find_allowed_differences
from nystra.runtime.model import references
from nystra.runtime.model.references import (
    ReferenceCase,
    References,
    read_references,
    write_references,
)


def case() -> ReferenceCase:
    image = np.linspace(0, 1, 48, dtype=np.float32).reshape(1, 3, 4, 4)
    return ReferenceCase({"input": image}, {"output": image})


def members() -> dict[str, bytes]:
    def array(values: np.ndarray) -> bytes:
        stream = io.BytesIO()
        np.lib.format.write_array(stream, values, version=(1, 0))
        return stream.getvalue()

    return {
        "size0.input.input.npy": array(case().inputs["input"]),
        "size0.output.output.npy": array(case().outputs["output"]),
        "meta.npy": array(np.frombuffer(b"{}", np.uint8)),
    }


def written(path: Path, compression: int = zipfile.ZIP_STORED, **changed: bytes) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members().items():
            archive.writestr(name, changed.get(name.split(".")[0], content))
    return path


def header(text: str, body: bytes = b"\0" * 64) -> bytes:
    padded = text.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + body


def described(dtype: str, shape: str) -> bytes:
    return header(f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}")


def meta(text: str) -> bytes:
    return described("|u1", f"({len(text)},)")[:-64] + text.encode()


def test_the_members_as_they_are_can_be_read(tmp_path: Path) -> None:
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        back = read_references(written(tmp_path / "r.npz", compression))
        np.testing.assert_array_equal(back.cases[0].outputs["output"], case().outputs["output"])
    assert read_references(written(tmp_path / "r.npz", meta=meta('{"a": 1}'))).meta == {"a": 1}


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_twice_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "r.npz")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("meta.npy", meta("{}"))
        archive.writestr("meta.npy", meta("{}"))
    with pytest.raises(NystraError, match=r"'meta.npy' more than once"):
        read_references(path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"size0": b"no magic here at all"}, "damaged"),
        ({"size0": described("<f4", "(10**12,)")}, "damaged"),
        ({"size0": described("<f4", "(9000000000000,)")}, "has 64 bytes"),
        ({"size0": described("|O", "(8,)")}, "expected numbers"),
        ({"size0": described("<c8", "(8,)")}, "expected numbers"),
        ({"size0": header("(" * 90)}, "damaged"),
        ({"size0": b"\x93NUMPY\x02\x00" + b"\0" * 99}, "version 1.0"),
        ({"meta": meta("[" * 300)}, "nested more than 64 levels deep"),
        ({"meta": meta('{"a": 1' + "0" * 400 + "}")}, "a whole number of 401 digits"),
    ],
)
def test_hostile_members(tmp_path: Path, changed: dict[str, bytes], message: str) -> None:
    with pytest.raises(NystraError, match=message) as caught:
        read_references(written(tmp_path / "r.npz", **changed))
    assert "r.npz" in str(caught.value)


def test_hostile_archives(tmp_path: Path) -> None:
    path = written(tmp_path / "r.npz", zipfile.ZIP_BZIP2)
    with pytest.raises(NystraError, match="compressed by an unknown method"):
        read_references(path)
    content = bytearray(written(path).read_bytes())
    place = content.index(b"PK\x01\x02")
    content[place + 8] |= 1  # the bit that says encrypted, in the directory
    path.write_bytes(content)
    with pytest.raises(NystraError, match="encrypted"):
        read_references(path)
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(10_001):
            archive.writestr(f"size{number}.input.i.npy", b"")
    with pytest.raises(NystraError, match="they hold 10001 arrays"):
        read_references(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(NystraError, match=r"readme\.txt is no array"):
        read_references(path)


@pytest.mark.parametrize(
    "value", [float("inf"), float("nan"), -1e-4, True, 1e9, 1.0, 10**400, "1e-4", None, [[1e-4]]]
)
def test_a_tolerance_that_lets_anything_pass(value: Any) -> None:
    with pytest.raises(NystraError, match="expected a number from 0 to below 1"):
        find_allowed_differences(References((case(),), {"tolerances": [value]}))
    if value is not None:
        with pytest.raises(NystraError, match="a larger tolerance would accept any output"):
            find_allowed_differences(References((case(),)), value)
    with pytest.raises(NystraError, match="a larger tolerance would accept any output"):
        find_allowed_differences(References((case(),), {"mean_tolerances": [value]}))


def test_recorded_files_may_be_of_large_values(tmp_path: Path) -> None:
    large = ReferenceCase(case().inputs, {"output": case().outputs["output"] * 255})
    path = tmp_path / "r.npz"
    write_references(path, [large], {"tolerances": [2.0]})
    assert find_allowed_differences(read_references(path)) == [(2.0, None)]
    assert json.dumps(read_references(path).meta) == '{"tolerances": [2.0]}'


def packed(path: Path, dtype: str, count: int) -> Path:
    """Write a small file with one large array of zeros."""
    head = described(dtype, f"({count},)")[:-64]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members().items():
            archive.writestr(name, content)
        with archive.open("size0.input.zeros.npy", "w") as stream:
            stream.write(head + bytes(count * np.dtype(dtype).itemsize))
    return path


def test_an_array_is_held_once(tmp_path: Path) -> None:
    path = packed(tmp_path / "r.npz", "<f4", 10 << 20)
    tracemalloc.start()
    try:
        (first,) = read_references(path).cases
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert first.inputs["zeros"].nbytes == 40 << 20
    assert peak < 45 << 20


def test_the_limit_counts_what_a_run_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "_LIMIT", 8 << 20)
    read_references(packed(tmp_path / "r.npz", "<f4", 1 << 20))
    with pytest.raises(NystraError, match="they unpack to 12 MiB or more"):
        read_references(packed(tmp_path / "r.npz", "|u1", 3 << 20))
