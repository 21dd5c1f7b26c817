"""Checkpoints that attack or confuse the reader: each is refused quickly in one clear line."""

import io
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from nystra.core.errors import CheckpointError, NystraError
from nystra.models.checkpoints.checkpoint import read_checkpoint
from nystra.models.loading import load
from small_swinir import state_of

BLOCK = "layers.0.residual_group.blocks.0."
BIAS_FREE = {"window_size": 4, "num_heads": [2]}


@pytest.fixture(autouse=True)
def _quickly() -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < 5.0


def refused(path: Path, words: str, **hyper: Any) -> None:
    with pytest.raises(NystraError, match=words) as caught:
        load(path, **hyper)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: x.to_sparse(), r"norm.weight is a sparse tensor \(sparse_coo\)"),
        (lambda x: torch.eye(8).to_sparse_csr(), r"norm.weight is a sparse tensor \(sparse_csr\)"),
        (lambda x: x.to("meta"), "norm.weight is on the device 'meta', without values"),
        (
            lambda x: torch.zeros(1).expand(1 << 40),
            "its tensors would take 4398046",
        ),
        (lambda x: x.view([1] * 20 + [8]), "norm.weight is of 21 dimensions"),
        (lambda x: torch.zeros([1] * 70), "not a checkpoint|70 dimensions|too many|refused"),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "quantized|refused"),
        (lambda x: x.to(torch.int64), "of another type: norm.weight int64 instead of float32"),
        (lambda x: x > 0, "of another type: norm.weight bool instead of float32"),
        (
            lambda x: x.to(torch.complex64),
            "of another type: norm.weight complex64 instead of float32",
        ),
        (lambda x: x * float("nan"), "NaN or infinite values in 1 tensors, first norm.weight"),
        (lambda x: x * complex("nan"), "NaN or infinite values in 1 tensors, first norm.weight"),
        (lambda x: x.double() + 1e300, "norm.weight has values beyond the range of float32"),
        (lambda x: torch.zeros(0, 8), "misshapen: norm.weight"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*(beta state|deprecated)")
def test_tensors(tmp_path: Path, make: Callable[[torch.Tensor], torch.Tensor], words: str) -> None:
    state = state_of()
    state["norm.weight"] = make(state["norm.weight"])
    torch.save(state, tmp_path / "a.pth")
    refused(tmp_path / "a.pth", words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layers.100000000.residual_group.blocks.0.x": (1,)}, "numbered from 0 without a gap"),
        ({"layers.1000000000.residual_group.blocks.0.x": (1,)}, "1 surplus: layers.1000"),
        (
            {f"layers.0.residual_group.blocks.{n}.x": (1,) for n in range(3000)},
            "3000 blocks;",
        ),
        ({f"upsample.{n}.weight": (1, 1, 1, 1) for n in range(5000)}, "fit|built"),
        ({"conv_first.weight": (8,)}, r"conv_first.weight has the shape \(8,\); expected 4"),
        ({"conv_first.weight": (8, 0, 3, 3)}, r"conv_first.weight has the shape \(8, 0, 3, 3\)"),
        ({f"{BLOCK}mlp.fc1.weight": ()}, "mlp.fc1.weight has the shape"),
        ({f"{BLOCK}attn.relative_position_bias_table": (49,)}, "expected 2 sizes"),
        ({f"{BLOCK}attn.relative_position_bias_table": (49, 3)}, "not a multiple of num_heads"),
        ({"a\x1b[31m": (1,)}, r"'a\\x1b\[31m' is not the name of a tensor"),
    ],
)
def test_keys_and_shapes(tmp_path: Path, change: dict[str, tuple[int, ...]], words: str) -> None:
    state = state_of() | {key: torch.zeros(shape) for key, shape in change.items()}
    save_file(state, tmp_path / "a.safetensors")
    refused(tmp_path / "a.safetensors", words)


@pytest.mark.full
@pytest.mark.parametrize(
    ("hyper", "words"),
    [
        ({"depths": 5}, "depths is 5; expected a list, each a whole number"),
        ({"depths": [1000000]}, r"depths \[1000000\] were given, the tensors have \[2\]"),
        ({"num_heads": 2.0}, "num_heads is 2.0; expected a whole number"),
        ({"num_heads": [0]}, "must be at least 1"),
        ({"num_heads": [3]}, "embed_dim 8 is not a multiple of num_heads"),
        ({"mlp_ratio": float("inf")}, "Infinity|not JSON"),
        ({"mlp_ratio": -1.0}, "mlp_ratio -1.0 must be above 0"),
        ({"window_size": 0}, "a side of 0x0 is not within 1 to 1024"),
        ({"window_size": -1}, "a side of -1x-1 is not within"),
        ({"window_size": 10**9}, "window_size is 1000000000; expected a whole number of at most"),
        ({"window_size": 5000}, "a side of 5000x5000"),
        ({"window_size": [4, 4, 4]}, r"\[4, 4, 4\]; expected a whole number of .* or a list of 2"),
        ({"window_size": "4"}, "window_size is '4'"),
        ({"upscale": 1 << 19}, "upscale 524288 is not within"),
        ({"qkv_bias": "no"}, "qkv_bias is 'no'; expected true or false"),
        ({"embed_dim": 1 << 20}, "does not fit SwinIR|cannot be built"),
        ({"color": 1}, "no hyper-parameter 'color'"),
        ({"architecture": "csnln"}, "given as csnln, but the file has no SEM.*swinir"),
        ({"architecture": ["swinir"]}, r"architecture \['swinir'\] is unknown"),
    ],
)
def test_hyper_parameters(tmp_path: Path, hyper: dict[str, Any], words: str) -> None:
    stored = {"nystra": json.dumps(BIAS_FREE | hyper)}
    save_file(state_of(position_bias=False), tmp_path / "a.safetensors", stored)
    refused(tmp_path / "a.safetensors", words)
    if "Infinity" not in words and "architecture" not in hyper:
        save_file(state_of(position_bias=False), tmp_path / "b.safetensors")
        refused(tmp_path / "b.safetensors", words, **(BIAS_FREE | hyper))


def test_windows_asked_of_a_network_with_a_table(tmp_path: Path) -> None:
    save_file(state_of(), tmp_path / "a.safetensors")
    for window, words in ((0, "0x0"), (-1, "-1x-1"), (10**9, "at most"), ([8], "a list of 2")):
        refused(tmp_path / "a.safetensors", words, window_size=window)
    refused(tmp_path / "a.safetensors", "mlp_ratio is inf", mlp_ratio=float("inf"))


@pytest.mark.parametrize(
    "text",
    ["[" * 100000, '{"window_size": ' + "9" * 5000 + "}", '{"a": NaN}', "{", "[]", '{"a": 1e999}'],
)
def test_metadata(tmp_path: Path, text: str) -> None:
    save_file(state_of(), tmp_path / "a.safetensors", {"nystra": text})
    refused(tmp_path / "a.safetensors", "its metadata 'nystra' is not")


def test_files_that_must_not_be_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pth")
    with (tmp_path / "huge.pth").open("wb") as file:
        file.truncate(1 << 40)
    for path, words in (
        (tmp_path / "pipe.pth", "is a pipe"),
        (Path("/dev/zero"), "is a device"),
        (tmp_path / "huge.pth", "expected a checkpoint of 16 GiB at most"),
        (tmp_path / ("n" * 300 + ".pth"), "File name too long"),
        (Path("n" * 300), "File name too long|no shipped checkpoint"),
    ):
        refused(path, words)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file(state_of(), tmp_path / "a.safetensors")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    refused(tmp_path / "a.safetensors", "cannot read the checkpoint .*: Permission denied")


def checkpoint_bytes(state: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue()


def deflated(content: bytes) -> bytes:
    stream = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as plain,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    return stream.getvalue()


ONE = torch.zeros(1 << 20)
HALF = ONE.half()
SHARED: dict[str, Callable[[], bytes]] = {
    "views": lambda: checkpoint_bytes({f"{n}.weight": ONE[: (1 << 20) - n] for n in range(60)}),
    "one tensor": lambda: checkpoint_bytes({f"{n}.weight": ONE for n in range(60)}),
    "half": lambda: checkpoint_bytes({f"{n}.weight": HALF for n in range(60)}),
    "expanded": lambda: checkpoint_bytes({"a": torch.zeros(1).expand(1 << 26), "b": ONE}),
    "wrapped": lambda: checkpoint_bytes({str(n): {"weight": ONE, "bias": ONE} for n in range(40)}),
    "optimizer": lambda: checkpoint_bytes(
        {
            "params": state_of(),
            "optimizer": {"state": {f"{n}": {"exp_avg": ONE} for n in range(60)}},
        }
    ),
    "deflated": lambda: deflated(checkpoint_bytes({"a": torch.zeros(24 << 20)})),
}


@pytest.mark.parametrize("name", SHARED)
def test_tensors_that_share_their_numbers_are_limited_together(tmp_path: Path, name: str) -> None:
    """82 kB took 4.3 GB: each tensor was no larger than the one storage behind all of them."""
    (tmp_path / "a.pth").write_bytes(SHARED[name]())
    refused(tmp_path / "a.pth", "its tensors would take|zip bomb")


def test_tensors_that_share_numbers_as_networks_do_are_read(tmp_path: Path) -> None:
    """Tied weights, averages beside them, stored in half precision, and expanded buffers."""
    state = {key: value.half() for key, value in state_of().items() if value.is_floating_point()}
    averaged = dict(state)
    averaged["norm.bias"] = torch.zeros(1, dtype=torch.float16).expand(8)
    torch.save({"params": state, "params_ema": averaged}, tmp_path / "a.pth")
    network = load(tmp_path / "a.pth").network
    assert torch.equal(network.state_dict()["norm.bias"], torch.zeros(8))


def parts_of(value: float) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(checkpoint_bytes({"w": torch.full((3,), value)}))) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("name", ["data/0", "data.pkl", "version"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_with_a_name_twice_is_refused(tmp_path: Path, name: str) -> None:
    """PyTorch read the first record, nystra the last one: one file was two checkpoints."""
    with zipfile.ZipFile(tmp_path / "a.pth", "w") as archive:
        for part, content in parts_of(1.0).items():
            archive.writestr(f"a/{part}", content)
        archive.writestr(f"a/{name}", parts_of(2.0)[name])
    refused(tmp_path / "a.pth", f"holds 'a/{name}' more than once")


def test_the_pickle_is_that_of_the_archive(tmp_path: Path) -> None:
    """One in a folder below was read if it came first."""
    with zipfile.ZipFile(tmp_path / "a.pth", "w") as archive:
        for folder, value in (("a/b", 2.0), ("a", 1.0)):
            for part, content in parts_of(value).items():
                archive.writestr(f"{folder}/{part}", content)
    assert read_checkpoint(tmp_path / "a.pth").state["w"].tolist() == [1.0] * 3


def test_a_zip_of_another_version(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
    data = bytearray(path.read_bytes())
    place = data.index(b"PK\x01\x02")
    data[place + 6 : place + 8] = b"\xff\x00"  # needs version 25.5 to extract
    path.write_bytes(data)
    refused(path, "a broken zip archive: .*version 25.5")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.png", b"\x89PNG\r\n\x1a\n" + bytes(40), "it is a PNG image"),
        ("a.onnx", b"\x08\x0a\x12\x06nystra" + bytes(40), "it is an ONNX model; give the"),
        ("a.pth", b"<!DOCTYPE html><html>", "it is a web page"),
        ("a.pth", b"version https://git-lfs.github.com/spec/v1\n", "it is a Git LFS pointer"),
        ("a.bin", b"GGUF\x03\0\0\0" + bytes(40), "it is a GGUF model; nystra-export takes"),
        ("a.ckpt", b"\x89HDF\r\n\x1a\n", "Keras or TensorFlow: convert .* tf2onnx.convert --keras"),
        ("a.bin", b"\x1c\0\0\0TFL3", "TensorFlow Lite model: convert .* --tflite"),
        ("a.pb", b"\x08\x01\x12\x03", "TensorFlow graph: convert .* --saved-model"),
        ("a.bin", b"\x08\x0a\x12\x07pytorch", "it is an ONNX model"),
        ("a.pth", bytes(257) + b"ustar\x0000", "it is a tar archive"),
        ("a.pth", b"7z\xbc\xaf\x27\x1c", "it is a 7z archive: unpack it"),
    ],
)
def test_what_is_no_checkpoint_is_named(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=words) as caught:
        read_checkpoint(tmp_path / name)
    assert "weights_only" not in str(caught.value)


def test_what_is_no_tensor_is_named(tmp_path: Path) -> None:
    torch.save({"when": Path("/tmp")}, tmp_path / "a.pth")
    with pytest.raises(CheckpointError, match=r"no tensors by name, but a dict: .*\['when'\]"):
        read_checkpoint(tmp_path / "a.pth")
