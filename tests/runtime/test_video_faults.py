"""Invalid videos and flags: one clear sentence, exit code 2 (3 without PyAV), nothing lost."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from nystra.cli.main import main
from nystra.core.files import writing
from nystra.runtime import ImageData, write_image
from runtime_models import nystra_metadata, save_upscaler
from video_files import look, save_frames, save_temporal_mean, save_video

STEADY = [3600 * index for index in range(12)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "same.onnx"
    return save_upscaler(path, 1, metadata=nystra_metadata(1))


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_video(tmp_path_factory.mktemp("clips") / "clip.mp4", STEADY, size=(48, 64))


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    return save_frames(tmp_path / "frames", 3)


def run(model: Path, source: Path, target: Path, *more: str) -> int:
    given = ["run", str(model), "-i", str(source), "-o", str(target), "--threads", "1", "-q"]
    return main([*given, *more])


def refused(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> None:
    assert code == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert all(word in error for word in words), error


def test_frames_of_different_size(
    tmp_path: Path, model: Path, frames: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_image(frames / "f2.png", ImageData(np.zeros((20, 32, 3), np.float32)), overwrite=True)
    code = run(model, frames, tmp_path / "out", "--video")
    refused(capsys, code, "f2.png is 32x20, the first one, f1.png, 32x24", "one size")
    assert not (tmp_path / "out").exists()
    assert run(model, frames, tmp_path / "out") == 0  # images that have nothing in common


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_frames(tmp_path: Path, count: int) -> None:
    """A network of four frames gets mirrored ones; the output is not padded."""
    network = save_temporal_mean(tmp_path / "mean.onnx", 4, 2)
    source = save_video(tmp_path / "in.mp4", STEADY[:count])
    assert run(network, source, tmp_path / "out.mp4") == 0
    assert len(look(tmp_path / "out.mp4").frames) == count


def test_frames_smaller_than_a_window(tmp_path: Path) -> None:
    metadata = nystra_metadata(1, **{"nystra.size_minimum": "16", "nystra.size_multiple": "8"})
    model = save_upscaler(tmp_path / "m.onnx", 1, metadata=metadata)
    clip = save_video(tmp_path / "in.mkv", STEADY[:2], pixel_format="yuv444p", size=(5, 7))
    assert run(model, clip, tmp_path / "out.mkv") == 0
    (first, second) = look(tmp_path / "out.mkv").frames
    assert (first.height, first.width, second.format.name) == (5, 7, "yuv444p")


def damage(path: Path, source: Path, kind: str) -> Path:
    data = bytearray(source.read_bytes())
    if kind == "truncated":
        data = data[: len(data) * 2 // 3]
    elif kind == "corrupt":
        third = len(data) // 3  # less may go unseen: H.264 has no checksums
        data[third : 2 * third] = b"\xff" * third
    elif kind == "late":
        begin, end = len(data) * 6 // 10, len(data) * 8 // 10
        data[begin:end] = b"\xff" * (end - begin)
    elif kind == "text":
        data = bytearray(b"#EXTM3U\nhttp://localhost/x.ts\n")
    elif kind == "list":
        data = bytearray(b"ffconcat version 1.0\nfile whole.mkv\n")
    else:
        data.clear()
    path.write_bytes(data)
    return path


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("truncated", "truncated"),
        ("corrupt", "damaged"),
        ("text", "not a video in a supported format"),
        ("list", "not a video in a supported format"),
        ("empty", "not a video in a supported format"),
    ],
)
@pytest.mark.parametrize("container", ["mp4", "start.mp4", "mkv"])
def test_damaged_videos(
    tmp_path: Path,
    model: Path,
    container: str,
    kind: str,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = {"movflags": "faststart"} if container == "start.mp4" else {}
    times = [3600 * index for index in range(30)]
    whole = save_video(tmp_path / f"whole.{container}", times, size=(48, 64), options=options)
    source = damage(tmp_path / f"in.{container}", whole, kind)
    code = run(model, source, tmp_path / "out.mp4")
    if (container, kind) == ("mkv", "corrupt"):
        words = "in.mkv"  # Matroska drops what it cannot read: damaged or cut short
    refused(capsys, code, words)
    assert not (tmp_path / "out.mp4").exists()


def test_a_damaged_frame_ends_the_run_with_its_number(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = save_video(tmp_path / "long.mp4", [3600 * index for index in range(80)])
    source = damage(tmp_path / "in.mp4", long, "late")
    long.unlink()
    code = run(model, source, tmp_path / "out.mp4")
    refused(capsys, code, "frame ", "is damaged", "Repair or convert it")
    assert [path.name for path in tmp_path.iterdir()] == ["in.mp4"]


def test_an_output_that_exists_stays(
    tmp_path: Path, model: Path, clip: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.mp4"
    target.write_bytes(b"precious")
    refused(capsys, run(model, clip, target), "out.mp4 exists", "--overwrite")
    assert run(model, clip, target, "--skip-existing") == 0
    assert target.read_bytes() == b"precious"
    refused(capsys, run(model, clip, clip), "is the input itself")
    assert run(model, clip, target, "--overwrite") == 0
    assert len(look(target).frames) == 12


def test_no_space_left(
    tmp_path: Path,
    model: Path,
    clip: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(writing.os, "fsync", full)
        refused(capsys, run(model, clip, tmp_path / "out.mp4"), "No space left on device")
    assert not list(tmp_path.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(writing.os, "replace", rename_but("out.mp4", full))
        refused(capsys, run(model, clip, tmp_path / "out.mp4"), "No space left")
    assert not list(tmp_path.iterdir())
    assert run(model, clip, tmp_path / "out.mp4") == 0
    assert len(look(tmp_path / "out.mp4").frames) == 12


def rename_but(name: str, full):  # type: ignore[no-untyped-def]
    rename = writing.os.replace

    def replace(source: Path, target: Path) -> None:
        return full() if Path(target).name == name else rename(source, target)

    return replace


def test_no_pyav(
    tmp_path: Path,
    model: Path,
    clip: Path,
    frames: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    assert run(model, clip, tmp_path / "out.mp4") == 3
    assert re.search("pip install .*'av>=", capsys.readouterr().err)
    assert run(model, frames, tmp_path / "out", "--video") == 0


@pytest.mark.parametrize(
    ("given", "target", "more", "words"),
    [
        ("clip", "out.mp4", ["--crf", "60"], "--crf is 60, expected a whole"),
        ("clip", "out.mp4", ["--codec", "vp9"], "expected h264 or hevc"),
        ("clip", "out.mp4", ["--format", "jpg"], "--format does not apply to a video file"),
        ("clip", "out.mp4", ["--recursive"], "--recursive does not apply to a video file"),
        ("clip", "out.mp4", ["--jobs", "2"], "--jobs does not apply to a video file"),
        ("clip", "out.mp4", ["--time-overlap", "2"], "single im"),
        ("frames", "out", ["--crf", "20"], "--crf: does not apply to images"),
        ("frames", "out", ["--video", "--crf", "20"], "--crf does not apply to the frames of one"),
        ("frames", "out", ["--video", "--skip-existing"], "--skip-existing does not apply to the"),
        ("frames", "frames", ["--video"], "is the input itself"),
        ("frames", "out.mp4", [], "has to be a folder too"),
        ("clip", "out.png", [], "expected a video (.mp4"),
        ("clip", "out", ["--codec", "h264"], "expected a video (.mp4"),
        ("clip", "-", [], "expected a video (.mp4"),
        ("none.mp4", "out.mp4", [], "no video or folder"),
    ],
)
def test_flags_that_do_not_apply(
    tmp_path: Path,
    model: Path,
    clip: Path,
    frames: Path,
    given: str,
    target: str,
    more: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = {"frames": frames, "clip": clip}.get(given, tmp_path / given)
    there = Path(target) if target == "-" else tmp_path / target
    refused(capsys, run(model, source, there, *more), words)
    assert [path.name for path in tmp_path.iterdir()] == ["frames"]


def test_sound_that_a_container_does_not_take(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = save_video(tmp_path / "in.mkv", STEADY, sound=True, audio_codec="wavpack")
    code = run(model, source, tmp_path / "out.mp4")
    refused(capsys, code, "out.mp4 cannot be written", "wavpack", "Choose .mkv")
    assert run(model, source, tmp_path / "out.mkv") == 0


def test_larger_frames_than_are_decoded(
    tmp_path: Path,
    model: Path,
    clip: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("nystra.runtime.video.containers.MAX_PIXELS", 2000)
    refused(capsys, run(model, clip, tmp_path / "out.mp4"), "clip.mp4")
