"""A video file has the same bytes in every run, also after an interruption."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av", reason="the extra nystra[video] is not installed")

from nystra.cli.main import main
from nystra.runtime.video import file_sink
from nystra.runtime.video.encoding import Packet, has_avx512
from nystra.runtime.video.parts import Parts
from runtime_models import nystra_metadata, save_upscaler
from video_files import save_video

STEADY = [3600 * index for index in range(14)]

ENCODE = """
import hashlib, sys
from fractions import Fraction
import numpy as np
from nystra.runtime.video.color import Color
from nystra.runtime.video.encoding import Encoding, Packet
random, ramp = np.random.default_rng(0), np.linspace(0, 0.5, 162)[None, :, None]
encoding = Encoding(sys.argv[1], 18, (120, 162), Color(1), Fraction(1, 25), Fraction(25))
encoder, digest = encoding.encoder(), hashlib.sha256()
for index in range(120):
    planes = encoding.planes(random.random((120, 162, 3)) * 0.5 + ramp)
    for packet in Packet.all_of(encoder.encode(encoding.frame(planes, index))):
        digest.update(packet.data)
for packet in Packet.all_of(encoder.encode(None)):
    digest.update(packet.data)
print(digest.hexdigest())
"""


def run(model: Path, source: Path, target: Path, *more: str) -> int:
    given = ["run", str(model), "-i", str(source), "-o", str(target), "--threads", "1", "-q"]
    return main([*given, *more])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "same.onnx"
    return save_upscaler(path, 1, metadata=nystra_metadata(1))


def stopped_at(frames: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt the next runs when they write one of these frames."""
    write = file_sink.VideoSink.write

    def interrupted(self: file_sink.VideoSink, frame: object, image: object) -> None:
        if frames and frame.index == frames[0]:  # type: ignore[attr-defined]
            frames.pop(0)
            raise KeyboardInterrupt
        write(self, frame, image)  # type: ignore[arg-type]

    monkeypatch.setattr(file_sink.VideoSink, "write", interrupted)


@pytest.mark.full
@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_a_run_that_was_stopped_gives_the_same_file(
    tmp_path: Path, model: Path, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_sink, "PART", 5)
    source = save_video(tmp_path / "in.mp4", STEADY, sound=True)
    whole, other = tmp_path / "whole.mp4", tmp_path / "other.mp4"
    assert run(model, source, whole, "--codec", codec) == 0
    stops = [3, 4, 5, 10, 13]
    stopped_at(stops, monkeypatch)
    for _ in range(5):
        assert run(model, source, other, "--codec", codec) == 130
    assert run(model, source, other, "--codec", codec) == 0
    assert not stops
    assert other.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.mp4", "other.mp4", "whole.mp4"]


def test_the_words_after_an_interrupt_promise_what_the_command_does(
    tmp_path: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = save_video(tmp_path / "in.mp4", STEADY)
    for more, words in (
        ((), "3 finished frames are kept in {}.parts: the same command continues from there"),
        (("--overwrite",), "{}.parts: the same command without --overwrite continues from there"),
    ):
        stopped_at([3], monkeypatch)
        assert run(model, source, tmp_path / "out.mp4", *more) == 130
        assert words.format(tmp_path / "out.mp4") in capsys.readouterr().err
    assert run(model, source, tmp_path / "out.mp4", "--json") == 0
    assert '"kept": 3' in capsys.readouterr().out


def test_frames_that_were_half_written_do_not_count(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    frames = [
        [random.integers(0, 1024, shape).astype(np.uint16) for shape in ((6, 8), (3, 4), (3, 4))]
        for _ in range(3)
    ]
    target = tmp_path / "out.mp4"
    parts = Parts(target, {"of": "a test"})
    parts.begin()
    for time, planes in enumerate(frames):
        parts.add(7 * time, planes)
    again = Parts(target, {"of": "a test"})
    assert again.pending == 3
    for index, (time, planes) in enumerate(again.frames()):
        assert time == 7 * index
        for one, other in zip(planes, frames[index], strict=True):
            np.testing.assert_array_equal(one, other)
    second, last = parts.folder / "000000001.frame", parts.folder / "000000002.frame"
    last.write_bytes(last.read_bytes()[:-5])
    assert Parts(target, {"of": "a test"}).pending == 2
    content = bytearray(second.read_bytes())
    content[content.index(frames[1][0].tobytes()) + 50] ^= 1
    second.write_bytes(content)
    begun = Parts(target, {"of": "a test"})
    assert begun.pending == 1
    begun.add(7, frames[1])
    assert [time for time, _ in begun.frames()] == [0, 7]
    assert Parts(target, {"of": "a test"}, fresh=True).pending == 0
    begun.save([Packet(0, 0, True, b"a"), Packet(7, 7, False, b"b")], b"")
    assert (begun.done, begun.pending, second.exists()) == (2, 0, False)
    begun.remove()
    assert not parts.folder.exists()


@pytest.mark.full
@pytest.mark.parametrize(
    ("codec", "runs"), [("h264", 8), pytest.param("hevc", 3, marks=pytest.mark.release)]
)
def test_encoders_give_the_same_packets(codec: str, runs: int) -> None:
    """x264 on AVX-512 gave two to five streams in eight runs."""
    digests = set()
    for filler in (0, 1, 255, 37, 90, 128, 165, 200)[:runs]:  # of memory that nobody has written
        done = subprocess.run(
            [sys.executable, "-c", ENCODE, codec],
            env={**os.environ, "MALLOC_PERTURB_": str(filler)},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout)
    assert len(digests) == 1


def test_avx512_is_found_out() -> None:
    cpu = Path("/proc/cpuinfo")
    if not cpu.exists():
        pytest.skip("no /proc/cpuinfo here")
    assert has_avx512() == ("avx512f" in cpu.read_text())
