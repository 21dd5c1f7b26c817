"""Pickles with more than tensors: everything else becomes a stand-in, and nothing is executed."""

import argparse
import collections
import datetime
import enum
import io
import pathlib
import pickle
import random
import resource
import struct
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nystra.core.errors import CheckpointError
from nystra.models.checkpoints.checkpoint import read_checkpoint
from nystra.models.checkpoints.containers import Criteria
from nystra.models.checkpoints.pickle_values import Standin, read_pickle
from nystra.models.loading import load
from small_swinir import state_of

ANY = Criteria(lambda _: True, lambda _: 0.0)


class Color(enum.Enum):
    RED = 1


class Config(dict):  # type: ignore[type-arg]
    pass


class Averaged:
    def __init__(self) -> None:
        self.decay = 0.9
        self.shadow = state_of()


class OwnTensor(torch.Tensor):
    pass


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Conv2d(3, 3, 3)
        self.more = torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.Linear(2, 2))
        self.register_buffer("passing", torch.ones(1), persistent=False)


EXTRAS: list[Any] = [
    np.float64(31.2),
    np.arange(3),
    np.random.RandomState(0).get_state(),
    np.random.default_rng(0),
    torch.get_rng_state(),
    argparse.Namespace(scale=2, path=pathlib.PurePosixPath("/x")),
    datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc),
    collections.defaultdict(list, {"a": [1]}),
    Config(a=1),
    Color.RED,
    {1, 2, frozenset((3, 4))},
    random.getstate(),
    np.dtype("float32"),
    slice(1, 2),
    complex(1, 2),
    b"bytes",
    1 << 100,
]


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("legacy", [False, True])
def test_tensors_beside_other_objects_are_read(tmp_path: Path, protocol: int, legacy: bool) -> None:
    content = {"extra": EXTRAS, "params": state_of(), "args": EXTRAS[5], "epoch": 3}
    torch.save(
        content,
        tmp_path / "a.pth",
        pickle_protocol=protocol,
        _use_new_zipfile_serialization=not legacy,
    )
    loaded = load(tmp_path / "a.pth")
    assert loaded.checkpoint.wrapper == "params"
    for key, value in state_of().items():
        assert torch.equal(loaded.checkpoint.state[key], value), key


def test_tensors_inside_objects_are_read(tmp_path: Path) -> None:
    for content, wrapper in (
        (Averaged(), "shadow"),
        ({"config": Config(state=state_of())}, "config/state"),
        ([{"lr": 1}, state_of()], "1"),
        (OwnTensor, None),
    ):
        if wrapper is None:
            kept = {key: value.as_subclass(OwnTensor) for key, value in state_of().items()}
            content, wrapper = {"params": kept}, "params"
        torch.save(content, tmp_path / "a.pth")
        loaded = load(tmp_path / "a.pth")
        assert loaded.checkpoint.wrapper == wrapper
        assert torch.equal(loaded.checkpoint.state["norm.bias"], state_of()["norm.bias"])
        assert type(loaded.checkpoint.state["norm.bias"]) is torch.Tensor


def test_a_whole_module_is_its_state_dict(tmp_path: Path) -> None:
    network = Net()
    torch.save(network, tmp_path / "a.pth")
    state = read_checkpoint(tmp_path / "a.pth", ANY).state
    assert state.keys() == network.state_dict().keys()
    assert torch.equal(state["more.1.weight"], network.more[1].weight)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn, torch.uint16]
)
@pytest.mark.parametrize("legacy", [False, True])
def test_values_are_those_of_pytorch(tmp_path: Path, dtype: torch.dtype, legacy: bool) -> None:
    if legacy and dtype in (torch.float8_e4m3fn, torch.uint16):
        pytest.skip("PyTorch does not read back what it writes in that format")
    base = torch.arange(24).reshape(2, 3, 4).to(dtype)
    content = {
        "whole": base,
        "view": base[1:, :, 1:3],
        "turned": base.mT,
        "scalar": base[0, 0, 2],
        "empty": base[:0],
        "flags": torch.tensor([True, False]),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    torch.save(content, tmp_path / "a.pth", _use_new_zipfile_serialization=not legacy)
    state = read_checkpoint(tmp_path / "a.pth", ANY).state
    for key, value in torch.load(tmp_path / "a.pth", weights_only=True).items():
        assert state[key].dtype == value.dtype, key
        assert torch.equal(state[key].double(), value.detach().double()), key
    assert state["whole"].untyped_storage().data_ptr() == state["turned"].data_ptr()


def archive(path: Path, data: bytes, storages: dict[str, bytes] | None = None) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/data.pkl", data)
        for key, value in (storages or {}).items():
            file.writestr(f"a/data/{key}", value)
    return path


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def tensor(offset: int, size: int, stride: int, count: int, key: str = "0") -> bytes:
    """Return a pickle of {"a": a tensor of one axis}."""

    def number(value: int) -> bytes:
        return b"\x8a\x08" + value.to_bytes(8, "little", signed=True)

    storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu")
    storage += number(count) + b"tQ"
    numbers = number(offset) + number(size) + b"\x85" + number(stride) + b"\x85"
    call = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + numbers + b"\x89}tR"
    return b"\x80\x02}" + text("a") + call + b"s."


DEEP = 50_000
SYSTEM = b"cposix\nsystem\n" + text("touch executed") + b"\x85R"
ATTACKS = {
    "reduce": b"\x80\x02" + SYSTEM + b".",
    "reduce without protocol": b"cos\nsystem\n(S'touch executed'\ntR.",
    "inst": b"(S'touch executed'\nios\nsystem\n.",
    "obj": b"\x80\x02(cos\nsystem\n" + text("touch executed") + b"o.",
    "newobj": b"\x80\x02csubprocess\nPopen\n" + text("touch executed") + b"\x85\x81.",
    "eval": b"\x80\x02c__builtin__\neval\n" + text("open('executed', 'w')") + b"\x85R.",
    "exec of python 3": b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93" + text("1") + b"\x85R.",
    "import": b"\x80\x02c__builtin__\n__import__\n" + text("harmful") + b"\x85R.",
    "a module beside": b"\x80\x02charmful\nThing\n)R.",
    "copyreg": b"\x80\x02ccopyreg\n_reconstructor\n(charmful\nThing\nc__builtin__\nobject\nNtR.",
    "getattr": b"\x80\x02c__builtin__\ngetattr\n(charmful\nThing\n" + text("run") + b"tR)R.",
    "operator": b"\x80\x02coperator\nmethodcaller\n" + text("system") + b"\x85Rcos\npath\n\x85R.",
    "runpy": b"\x80\x02crunpy\nrun_path\n" + text("harmful.py") + b"\x85R.",
    "numpy": b"\x80\x02cnumpy\nload\n" + text("harmful.npy") + b"\x85R.",
    "load from bytes": b"\x80\x02ctorch.storage\n_load_from_bytes\nC\x02ab\x85R.",
    "extension": b"\x80\x02\x82\x01)R.",
    "setstate": b"\x80\x02charmful\nThing\n)R" + text("x") + b"b.",
    "state of a function": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN}("
    + text("__defaults__")
    + b"Nu\x86b.",
    "state of a tensor class": b"\x80\x02ctorch\nTensor\n}" + text("add") + b"Nsb.",
    "call of a call": b"\x80\x02" + b"ctorch._tensor\n_rebuild_from_type_v2\n" * 50 + b"NNN\x87R.",
    "memo": b"\x80\x02Nr\xff\xff\xff\xff.",
    "memo as text": b"Np" + b"9" * 4000 + b"\n.",
    "long text": b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7f" + b"abc.",
    "long bytes": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"abc.",
    "bytearray": b"\x80\x05\x96" + struct.pack("<Q", 1 << 36) + b"abc.",
    "frame": b"\x80\x04\x95" + b"\xff" * 8 + b"N.",
    "big number": b"I" + b"9" * 100_000 + b"\n.",
    "deep lists": b"\x80\x02" + b"](" * DEEP + b"e" * DEEP + b".",
    "deep tuples": b"\x80\x02)" + b"\x85" * DEEP + b".",
    "deep dictionaries": b"\x80\x02N" + b"1" * 10 + b"}" * DEEP + b"." ,
    "a list in itself": b"\x80\x02]q\x00h\x00a.",
    "hash of doubled tuples": b"\x80\x02})" + b"2\x86" * 60 + b"Ns.",
    "colliding keys": b"\x80\x02}("
    + b"".join(
        b"\x8a\x10" + (n * ((1 << 61) - 1)).to_bytes(16, "little") + b"N" for n in range(20_000)
    )
    + b"u.",
    "doubled dictionaries": b"\x80\x02}q\x00"
    + b"".join(
        b"}q" + bytes([n + 1]) + b"(" + text("a") + b"h" + bytes([n]) + text("b") + b"h"
        + bytes([n]) + b"u"
        for n in range(60)
    )
    + b".",
    "copied pairs": b"\x80\x02](" + (b"X\x01\x00\x00\x00aN\x86" * 10_000) + b"eq\x00"
    + b"ccollections\nOrderedDict\nq\x01" + b"h\x01h\x00\x85R" * 10_000 + b".",
    "persistent text": b"P../../etc/passwd\n.",
    "persistent list": b"\x80\x02]Q.",
    "underflow": b"\x80\x02\x87.",
    "no end": b"\x80\x02N",
    "nothing": b"\x80\x02.",
    "buffer": b"\x80\x05\x97.",
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("bare", [False, True])
def test_attacks(tmp_path: Path, name: str, bare: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    harmful = (
        "open('executed', 'w')\nclass Thing:\n    def __init__(self, *a): open('executed', 'w')"
    )
    Path("harmful.py").write_text(harmful)
    before = set(sys.modules)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    if bare:
        Path("a.pth").write_bytes(ATTACKS[name])
    else:
        archive(Path("a.pth"), ATTACKS[name])
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint("a.pth")
    assert "\n" not in str(caught.value)
    assert time.process_time() - start < 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 300_000  # kilobytes
    assert not Path("executed").exists()
    assert {new for new in set(sys.modules) - before if "nystra" not in new} <= {"encodings.cp437"}
    if name in ("reduce", "inst", "obj", "newobj", "eval", "exec of python 3", "runpy"):
        assert "runs code" in str(caught.value)


@pytest.mark.parametrize("device", ["cuda:3", "mps", "xpu:1", "hpu", "npu:0"])
def test_tensors_of_devices_that_are_not_here_are_read(tmp_path: Path, device: str) -> None:
    tensor = torch.arange(6.0)
    torch.save({"a": tensor}, tmp_path / "cpu.pth")
    text = device.encode()
    with (
        zipfile.ZipFile(tmp_path / "cpu.pth") as given,
        zipfile.ZipFile(tmp_path / "other.pth", "w") as written,
    ):
        for name in given.namelist():
            content = given.read(name)
            if name.endswith("data.pkl"):
                assert content.count(b"X\3\0\0\0cpu") == 1
                content = content.replace(
                    b"X\3\0\0\0cpu", b"X" + struct.pack("<I", len(text)) + text
                )
            written.writestr(name, content)
    torch.testing.assert_close(read_checkpoint(tmp_path / "other.pth", ANY).state["a"], tensor)


@pytest.mark.parametrize(
    ("offset", "size", "stride", "count", "words"),
    [
        (0, 5, 1, 4, "ends at element 4 of a storage of 4"),
        (4, 1, 1, 4, "ends at element 4"),
        (0, 2, 1 << 50, 4, "ends at element"),
        (-1, 2, 1, 4, "whole numbers from 0"),
        (0, -2, 1, 4, "whole numbers from 0"),
        (0, 2, -1, 4, "whole numbers from 0"),
        (0, 1 << 61, 0, 4, "its tensors would take"),
        (0, 4, 1, 5, "has 16 bytes, expected 5 elements"),
        (0, 4, 1, -1, "without a key or a length"),
    ],
)
def test_a_tensor_lies_inside_its_storage(
    tmp_path: Path, offset: int, size: int, stride: int, count: int, words: str
) -> None:
    data = tensor(offset, size, stride, count)
    path = archive(tmp_path / "a.pth", data, {"0": np.arange(4, dtype=np.float32).tobytes()})
    with pytest.raises(CheckpointError, match=words):
        read_checkpoint(path)


def test_a_tensor_written_by_hand(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "a.pth", tensor(1, 2, 2, 4), {"0": np.float32([0, 1, 2, 3]).tobytes()}
    )
    assert read_checkpoint(path).state["a"].tolist() == [1, 3]
    path = archive(tmp_path / "b.pth", tensor(0, 1, 1, 1, "../../b.pth"), {"0": bytes(4)})
    with pytest.raises(CheckpointError, match=r"There is no item named|b\.pth"):
        read_checkpoint(path)


def test_a_truncated_file_of_before(tmp_path: Path) -> None:
    whole = io.BytesIO()
    torch.save({"params": state_of()}, whole, _use_new_zipfile_serialization=False)
    data = whole.getvalue()
    for length in range(20, len(data), len(data) // 12):
        (tmp_path / "a.pth").write_bytes(data[:length])
        with pytest.raises(CheckpointError, match=r"not a checkpoint|no tensors"):
            read_checkpoint(tmp_path / "a.pth")


def test_too_many_tensors_are_refused_early(tmp_path: Path) -> None:
    one = torch.zeros(1)
    torch.save({f"a.{number}": one for number in range(120_000)}, tmp_path / "a.pth")
    start = time.process_time()
    with pytest.raises(CheckpointError, match="100000 at most"):
        read_checkpoint(tmp_path / "a.pth")
    assert time.process_time() - start < 20


def test_what_the_machine_keeps() -> None:
    content = {"a": [1, (2.5, None, True)], "b": Color.RED, "c": collections.OrderedDict(x=1)}
    value = read_pickle(io.BytesIO(pickle.dumps(content)))
    assert value["a"] == [1, (2.5, None, True)]
    assert value["c"] == {"x": 1}
    assert isinstance(value["b"], Standin)
    assert value["b"].name.endswith("Color")
    assert value["b"].arguments == (1,)
