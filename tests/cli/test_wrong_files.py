"""What a file is instead is said by its first bytes, wherever a file is read."""

import shlex
from pathlib import Path

import pytest

from nystra.cli.main import main
from nystra.core.files.kinds import file_kind
from runtime_models import nystra_metadata, save_upscaler

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 12345\n" % (b"a" * 64)
READERS = (
    "run wrong.onnx -i a.png -o o.png",
    "run wrong.pth -i a.png -o o.png",
    "run good.onnx -i wrong.png -o o.png",
    "run good.onnx -i wrong.mp4 -o o.mp4",
    "validate good.onnx --references wrong.npz",
    "check good.onnx --baseline wrong.json",
    "inspect wrong.onnx",
    "deploy triton wrong.onnx -o folder",
    "export wrong.onnx -o o.onnx",
    "export wrong.pth -o o.onnx",
    "export wrong.safetensors -o o.onnx",
    "export wrong.safetensors --plan wrong.json -o o.onnx",
)


@pytest.mark.parametrize("command", READERS)
def test_every_reader_says_what_a_file_is(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if ".mp4" in command:
        pytest.importorskip("av")
    monkeypatch.chdir(tmp_path)
    save_upscaler(Path("good.onnx"), metadata=nystra_metadata())
    for ending in ("onnx", "pth", "png", "mp4", "npz", "json", "safetensors"):
        Path(f"wrong.{ending}").write_bytes(POINTER)
    before = sorted(Path().iterdir())
    assert main(shlex.split(command)) == 2
    (said,) = (line for line in capsys.readouterr().err.splitlines() if line != "load")
    assert "a Git LFS pointer: fetch the file itself (git lfs pull)" in said
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n", "a PNG image"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "a HEIF image"),
        (b"\0\0\0\x20ftypisom\0\0\2\0", "a video"),
        (b"II*\0\x10\0\0\0CR\x02\0", "a raw photograph of a camera"),
        (b"RIFF\0\0\0\0AVI LIST", "a video"),
        (b"<!DOCTYPE html>", "a web page: use the direct download link of the file"),
        (b"ftrt\0\0\0\0", "a TensorRT engine"),
        (b"\x08\x08\x12\x07pytorch", "an ONNX model"),
        (bytes(256) + b"\0ustar", "a tar archive: unpack it first (tar xf)"),
        *((head, "") for head in (b"", b"\x08", b"hello", b"PK\3\4", b"\x80\2}q\0.", b"RIFF")),
    ],
)
def test_kinds(head: bytes, kind: str) -> None:
    assert str(file_kind(head) or "") == kind


def test_an_image_is_no_video(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message named the image as damaged."""
    pytest.importorskip("av")
    monkeypatch.chdir(tmp_path)
    save_upscaler(Path("good.onnx"), metadata=nystra_metadata())
    Path("a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert main(shlex.split("run good.onnx -i a.png -o o.mp4")) == 2
    assert "a.png is not a video: it is a PNG image, expected mp4, " in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    ["run good.onnx -i https://a.org/b.png -o o.png", "export https://a.org/b.pth -o o.onnx"],
)
def test_an_address_is_no_file(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    save_upscaler(Path("good.onnx"), metadata=nystra_metadata())
    assert main(shlex.split(command)) == 2
    assert "nystra opens no connection: download the file first" in capsys.readouterr().err
