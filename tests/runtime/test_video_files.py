"""Video files through ``nystra run``: frames, time stamps, colors and sound."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from nystra.cli.main import main
from nystra.runtime import ImageData, read_image
from nystra.runtime.video import file_sink, file_source
from runtime_models import nystra_metadata, save_upscaler
from video_files import TICKS, look, planes, save_frames, save_temporal_mean, save_video, scene

STEADY = [3600 * index for index in range(14)]
UNEVEN = [1234, *np.cumsum([3000, 3003, 6000, 1501] * 3).tolist()]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "same.onnx"
    return save_upscaler(path, 1, metadata=nystra_metadata(1))


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_upscaler(tmp_path_factory.mktemp("models") / "x2.onnx", metadata=nystra_metadata())


def run(model: Path, source: Path, target: Path, *more: str) -> int:
    given = ["run", str(model), "-i", str(source), "-o", str(target), "--threads", "1", "-q"]
    return main([*given, *more])


def decibels(got: Path, expected: Path, kind: type = np.uint8, peak: int = 255) -> list[float]:
    """Return the PSNR of each plane over all frames."""
    pairs = list(zip(look(got).frames, look(expected).frames, strict=True))
    errors = [
        [np.mean((np.subtract(*both, dtype=np.float64)) ** 2) for both in zip(*two, strict=True)]
        for two in ([planes(frame, kind) for frame in pair] for pair in pairs)
    ]
    return (10 * np.log10(peak**2 / np.maximum(np.mean(errors, 0), 1e-9))).tolist()


@pytest.mark.full
@pytest.mark.parametrize(("ending", "kind"), [(".mp4", "mp4"), (".mkv", "mkv"), (".mov", "mov")])
@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_frames_times_and_sound(
    tmp_path: Path, double: Path, ending: str, kind: str, codec: str
) -> None:
    source = save_video(tmp_path / f"in.{kind}", STEADY, sound=True, aspect=Fraction(4, 3))
    assert run(double, source, tmp_path / f"out{ending}", "--codec", codec, "--crf", "4") == 0
    before, after = look(source), look(tmp_path / f"out{ending}")
    assert (after.codec, after.frames[0].format.name) == (codec, "yuv420p")
    assert (after.frames[0].height, after.frames[0].width) == (48, 64)
    assert after.times == before.times
    assert (after.rate, after.aspect) == (25, Fraction(4, 3))
    assert sound(tmp_path / f"out{ending}") == sound(source)
    for large, small in zip(after.frames, before.frames, strict=True):
        halved = planes(large)[0].reshape(24, 2, 32, 2).mean((1, 3))
        assert np.abs(halved - planes(small)[0]).mean() < 1.0
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"in.{kind}", f"out{ending}"]


def sound(path: Path) -> list[tuple[int, bytes]]:
    """Return the packets of the sound: milliseconds and bytes."""
    import av

    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(audio=0) if packet.size]
        return [(round(packet.pts * packet.time_base * 1000), bytes(packet)) for packet in packets]


def test_a_variable_frame_rate_stays(tmp_path: Path, model: Path) -> None:
    source = save_video(tmp_path / "in.mp4", UNEVEN, options={"movie_timescale": "90000"})
    assert run(model, source, tmp_path / "out.mp4") == 0
    for path in (source, tmp_path / "out.mp4"):
        assert look(path).times == [time * TICKS for time in UNEVEN]


@pytest.mark.parametrize(
    ("pixel_format", "codec", "tags", "bits"),
    [
        ("yuv420p", "h264", (1, 1), 8),
        ("yuv420p", "h264", (6, 1), 8),
        ("yuv420p", "h264", (1, 2), 8),
        ("yuv422p", "h264", (1, 1), 8),
        ("yuv444p", "h264", (9, 1), 8),
        ("yuv420p10le", "hevc", (1, 1), 10),
    ],
)
def test_colors_come_out_as_they_went_in(
    tmp_path: Path, model: Path, pixel_format: str, codec: str, tags: tuple[int, int], bits: int
) -> None:
    encoder = "libx265" if bits == 10 else "libx264"
    source = save_video(
        tmp_path / "in.mkv", STEADY[:3], pixel_format=pixel_format, codec=encoder, tags=tags
    )
    assert run(model, source, tmp_path / "out.mkv", "--crf", "1") == 0
    made = look(tmp_path / "out.mkv")
    frames = made.frames
    assert made.codec == codec
    assert frames[0].format.name.replace("yuvj", "yuv") == pixel_format
    assert (int(frames[0].colorspace), int(frames[0].color_range)) == tags
    kind, peak = (np.uint16, 1023) if bits == 10 else (np.uint8, 255)
    luma, *differences = decibels(tmp_path / "out.mkv", source, kind, peak)
    assert luma > 44
    assert min(differences) > 40
    for before, after in zip(
        planes(look(source).frames[1], kind), planes(frames[1], kind), strict=True
    ):
        assert abs(float(after.mean()) - float(before.mean())) < 0.5 * peak / 255


def test_a_video_of_a_phone_stays_hdr_which_is_said(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """10 bits, BT.2020 and HLG."""
    source = save_video(
        tmp_path / "in.mp4",
        UNEVEN,
        pixel_format="yuv420p10le",
        codec="libx265",
        tags=(9, 1),
        light=(9, 18),
        sound=True,
    )
    assert run(model, source, tmp_path / "out.mp4") == 0
    before, after = look(source), look(tmp_path / "out.mp4")
    assert before.light == after.light == (9, 18)
    assert (int(after.frames[0].colorspace), after.frames[0].format.name) == (9, "yuv420p10le")
    assert after.times == before.times
    assert sound(tmp_path / "out.mp4") == sound(source)
    assert "the video is HDR (HLG)" in capsys.readouterr().err


def test_the_right_matrix_is_taken_and_ten_bits_stay(tmp_path: Path, model: Path) -> None:
    for tags in ((1, 1), (6, 1), (6, 2), (2, 1)):
        source = save_video(
            tmp_path / f"{tags}.mkv", STEADY[:4], pixel_format="yuv444p10le", tags=tags
        )
        assert run(model, source, tmp_path / "out.mkv", "--crf", "1", "--overwrite") == 0
        before, after = look(source).frames[1], look(tmp_path / "out.mkv").frames[1]
        assert after.format.name == "yuv444p10le"
        assert int(after.colorspace) == (6 if tags[0] == 2 else tags[0])
        for one, other in zip(planes(before, np.uint16), planes(after, np.uint16), strict=True):
            assert np.abs(np.subtract(one, other, dtype=float)).mean() < 2


@pytest.mark.parametrize("pixel_format", ["yuv444p", "yuv420p", "yuv444p10le"])
def test_colors_of_full_range_are_not_brighter(
    tmp_path: Path, model: Path, pixel_format: str
) -> None:
    """10 bits came out 1.7 of 1023 too bright; in one step of the scaler chroma is 0.5 too low."""
    deep = pixel_format.endswith("10le")
    source = save_video(tmp_path / "in.mkv", STEADY[:4], pixel_format=pixel_format, tags=(1, 2))
    assert run(model, source, tmp_path / "out.mkv", "--crf", "1") == 0
    pairs = zip(look(source).frames, look(tmp_path / "out.mkv").frames, strict=True)
    kind = np.uint16 if deep else np.uint8
    for before, after in pairs:
        shifts = [
            np.subtract(other, one, dtype=float).mean()
            for one, other in zip(planes(before, kind), planes(after, kind), strict=True)
        ]
        assert abs(shifts[0]) < 0.4, shifts
        assert np.abs(shifts).max() < (1.5 if deep else 0.4), shifts


@pytest.mark.parametrize("degrees", [90, -90, 180])
@pytest.mark.parametrize("ending", ["mp4", "mov", "mkv"])
def test_a_video_that_players_turn(tmp_path: Path, model: Path, degrees: int, ending: str) -> None:
    source = save_video(tmp_path / f"in.{ending}", STEADY[:3], turned=degrees)
    assert run(model, source, tmp_path / f"out.{ending}", "--crf", "1") == 0
    before, after = look(source).frames[2], look(tmp_path / f"out.{ending}").frames[2]
    assert (after.rotation, after.height, after.width) == (before.rotation, 24, 32)
    assert abs(after.rotation) == abs(degrees)
    assert np.abs(np.subtract(planes(before)[0], planes(after)[0], dtype=float)).mean() < 2


def test_one_graph_converts_all_frames(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One was built for every frame that is read."""
    built = []
    converter = file_source.Converter
    monkeypatch.setattr(file_source, "Converter", lambda *how: built.append(how) or converter(*how))
    source = save_video(tmp_path / "in.mp4", STEADY[:6])
    assert run(model, source, tmp_path / "out.mp4") == 0
    assert len(built) == 1


def test_frames_and_videos_become_each_other_by_ffmpeg(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_frames(tmp_path / "in", 3)
    assert run(model, folder, tmp_path / "out.mp4", "--video") == 2
    assert "a video of its images is made by ffmpeg" in capsys.readouterr().err.lower()
    source = save_video(tmp_path / "in.mp4", STEADY[:3])
    assert run(model, source, tmp_path / "out") == 2
    assert "images of its frames are made by ffmpeg" in capsys.readouterr().err.lower()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "in.mp4"]


def test_frames_of_a_folder(tmp_path: Path, model: Path) -> None:
    folder = save_frames(tmp_path / "in", 12)
    assert run(model, folder, tmp_path / "out", "--suffix", "_r", "--video") == 0
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == sorted(f"f{index + 1}_r.png" for index in range(12))
    for index in range(12):
        pixels = read_image(tmp_path / "out" / f"f{index + 1}_r.png").pixels * 255
        assert np.abs(pixels - scene(index)).mean() < 0.5
    assert run(model, folder, tmp_path / "out", "--suffix", "_r", "--video") == 2
    assert run(model, folder, tmp_path / "out", "--suffix", "_r", "--video", "--overwrite") == 0


def test_a_network_of_frames_runs_on_a_file(tmp_path: Path) -> None:
    model = save_temporal_mean(tmp_path / "mean.onnx", 4, 1)
    source = save_video(tmp_path / "in.mp4", STEADY[:7])
    assert run(model, source, tmp_path / "out.mp4", "--crf", "1") == 0
    before, after = (
        [planes(frame)[0] for frame in look(tmp_path / name).frames]
        for name in ("in.mp4", "out.mp4")
    )
    for index in range(1, 6):
        mean = np.mean([before[index + step] for step in (-1, 0, 1)], 0)
        assert np.abs(after[index] - mean).mean() < 1.0


def test_an_interrupted_run_leaves_nothing_and_starts_again(
    tmp_path: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = save_video(tmp_path / "in.mp4", STEADY, sound=True)
    write = file_sink.VideoSink.write

    def interrupted(self: file_sink.VideoSink, index: int, image: ImageData) -> None:
        if index == 5:
            raise KeyboardInterrupt
        write(self, index, image)

    monkeypatch.setattr(file_sink.VideoSink, "write", interrupted)
    assert run(model, source, tmp_path / "out.mp4") == 130
    assert "kept" not in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["in.mp4"]
    monkeypatch.setattr(file_sink.VideoSink, "write", write)
    (tmp_path / "out.mp4").write_bytes(b"precious")
    monkeypatch.setattr(file_sink.VideoSink, "write", interrupted)
    assert run(model, source, tmp_path / "out.mp4", "--overwrite") == 130
    assert (tmp_path / "out.mp4").read_bytes() == b"precious"
    monkeypatch.setattr(file_sink.VideoSink, "write", write)
    assert run(model, source, tmp_path / "out.mp4", "--overwrite") == 0
    assert look(tmp_path / "out.mp4").times == [time * TICKS for time in STEADY]
    assert sound(tmp_path / "out.mp4") == sound(source)
