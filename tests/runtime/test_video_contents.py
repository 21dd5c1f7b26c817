"""What a video holds besides its pixels: kept where the output holds it, and otherwise said."""

import io
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nystra.cli.main import main
from nystra.runtime.video.containers import READ_SUFFIXES
from runtime_models import nystra_metadata, save_upscaler
from video_files import look, planes, save_frames, save_video, scene

MILLISECOND = Fraction(1, 1000)
STEADY = [3600 * index for index in range(4)]
FONT = b"\0\1\0\0 a font"
CUES = [(40, 100, b"Hello"), (200, 60, b"World")]
LIGHT = "master-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,500)"

BITS = "not kept: 12 bits a channel, which became 10"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "same.onnx"
    return save_upscaler(path, 1, metadata=nystra_metadata(1))


def run(model: Path, source: Path, target: Path | str, *more: str) -> int:
    given = ["run", str(model), "-i", str(source), "-o", str(target), "--threads", "1", "-q"]
    return main([*given, *more])


def save_film(path: Path, subtitles: str) -> Path:
    """Write a video with subtitles, chapters and tags; in Matroska also a font and a cover."""
    import av
    from PIL import Image

    picture = io.BytesIO()
    Image.new("RGB", (16, 16), "red").save(picture, "JPEG")
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=25)
        video.width, video.height, video.pix_fmt = 32, 24, "yuv420p"
        video.metadata.update(title="main", language="jpn")
        text = container.add_mux_stream(subtitles)
        text.time_base = MILLISECOND
        text.metadata.update(language="ger", title="Untertitel")
        text.disposition = av.stream.Disposition.forced
        if path.suffix == ".mkv":
            container.add_attachment("font.ttf", "application/x-truetype-font", FONT)
            container.add_attachment("cover.jpg", "image/jpeg", picture.getvalue())
        container.metadata.update(title="My film", artist="me", comment="kept", mood="calm")
        container.set_chapters(
            [
                {"id": place, "start": start, "end": end, "time_base": MILLISECOND}
                | {"metadata": {"title": title}}
                for place, (start, end, title) in enumerate([(0, 120, "One"), (120, 320, "Two")])
            ]
        )
        container.start_encoding()
        for index in range(8):
            pixels = scene(index).astype(np.uint8)
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format="yuv420p")
            frame.pts = index
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
        for start, length, words in CUES:
            head = len(words).to_bytes(2, "big") if subtitles == "mov_text" else b""
            packet = av.Packet(head + words)
            packet.pts = packet.dts = start
            packet.duration, packet.time_base, packet.stream = length, MILLISECOND, text
            container.mux(packet)
    return path


def contents(path: Path) -> dict[str, Any]:
    """Return tags, chapters, cues, font and cover of a video."""
    import av

    with av.open(str(path)) as container:
        tags = {key.lower(): value for key, value in container.metadata.items()}
        chapters = [
            (float(one["start"] * one["time_base"]), one["metadata"]["title"])
            for one in container.chapters()
        ]
        tracks = {
            stream.type: (
                stream.metadata.get("language"),
                stream.metadata.get("title", stream.metadata.get("name")),
                bool(stream.disposition & av.stream.Disposition.forced),
            )
            for stream in container.streams
            if stream.type in ("video", "subtitle") and stream.codec_context.name != "mjpeg"
        }
        files = {stream.name: bytes(stream.data) for stream in container.streams.attachments}
        pictures = sum(stream.codec_context.name == "mjpeg" for stream in container.streams.video)
        cues = [
            (packet.pts, packet.duration, bytes(packet))
            for packet in container.demux(*container.streams.subtitles)
            if packet.size and bytes(packet) != b"\0\0"
        ]
    wanted = {key: tags.get(key) for key in ("title", "artist", "comment", "mood")}
    return {"tags": wanted, "chapters": chapters, "tracks": tracks, "files": files} | {
        "cues": cues,
        "pictures": pictures,
    }


def test_all_of_a_matroska_file_is_kept(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = save_film(tmp_path / "in.mkv", "subrip")
    assert run(model, source, tmp_path / "out.mkv") == 0
    assert capsys.readouterr().err == ""
    before, after = contents(source), contents(tmp_path / "out.mkv")
    assert after == before
    assert before["tags"]["mood"] == "calm"
    assert before["tracks"] == {
        "video": ("jpn", "main", False),
        "subtitle": ("ger", "Untertitel", True),
    }
    assert (before["files"], before["cues"], before["pictures"]) == ({"font.ttf": FONT}, CUES, 1)


def test_what_mp4_does_not_hold_is_said(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = save_film(tmp_path / "in.mkv", "subrip")
    assert run(model, source, tmp_path / "out.mp4") == 0
    said = capsys.readouterr().err
    for words in ("subtitle stream 1 (srt, ger)", "attachment font.ttf", "tags MOOD"):
        assert f"not kept: the {words}, which the output does not hold" in said
    assert said.count("not kept") == 3
    before, after = contents(source), contents(tmp_path / "out.mp4")
    assert (after["chapters"], after["pictures"]) == (before["chapters"], 1)
    assert after["tags"] == before["tags"] | {"mood": None}
    assert after["tracks"] == {"video": before["tracks"]["video"]}
    assert run(model, source, tmp_path / "out.mov") == 0
    assert "not kept: the cover, which the output does not hold" in capsys.readouterr().err


def test_the_time_of_a_recording_is_kept(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each stream of mp4 repeats it, and was said to lose it."""
    import av

    time = "2024-01-02T03:04:05.000000Z"
    save_video(tmp_path / "in.mp4", STEADY)
    with av.open(str(tmp_path / "in.mp4")) as source, av.open(str(tmp_path / "t.mp4"), "w") as copy:
        copy.metadata["creation_time"] = time
        stream = copy.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            packet.stream = stream
            if packet.dts is not None:
                copy.mux(packet)
    assert run(model, tmp_path / "t.mp4", tmp_path / "out.mkv") == 0
    assert capsys.readouterr().err == ""
    with av.open(str(tmp_path / "out.mkv")) as made:
        assert made.metadata["creation_time"] == time


def test_subtitles_of_mp4(tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = save_film(tmp_path / "in.mp4", "mov_text")
    assert run(model, source, tmp_path / "out.mp4") == 0
    assert capsys.readouterr().err == ""
    assert contents(tmp_path / "out.mp4") == contents(source)
    assert run(model, source, tmp_path / "out.mkv") == 0
    said = capsys.readouterr().err
    assert "not kept: the subtitle stream 1 (mov_text, ger), which the output" in said


@pytest.mark.parametrize(
    ("name", "codec", "pixel_format", "bits"),
    [
        ("qtrle.mov", "qtrle", "argb", 8),
        ("prores.mov", "prores_ks", "yuva444p10le", 12),
        ("ffv1.mkv", "ffv1", "yuva420p", 8),
    ],
)
def test_alpha_is_said(
    tmp_path: Path,
    model: Path,
    name: str,
    codec: str,
    pixel_format: str,
    bits: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import av

    with av.open(str(tmp_path / name), "w") as container:
        stream = container.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt = 32, 24, pixel_format
        for index in range(3):
            pixels = np.dstack([scene(index), np.full((24, 32), 40)]).astype(np.uint8)
            frame = av.VideoFrame.from_ndarray(pixels, format="rgba").reformat(format=pixel_format)
            frame.pts = index
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    assert run(model, tmp_path / name, tmp_path / "out.mkv", "--crf", "1") == 0
    said = re.findall("warning: .*?: (.*)", capsys.readouterr().err)
    assert said[0].startswith("not kept: the alpha, which the output does not hold")
    assert said[1:] == [BITS] * (bits == 12)  # decoders give it 12 bits
    for index, frame in enumerate(look(tmp_path / "out.mkv").frames):
        assert np.abs(frame.to_ndarray(format="rgb24") - scene(index).astype(float)).mean() < 3


def test_interlaced_frames_are_said(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import av

    with av.open(str(tmp_path / "in.mkv"), "w") as container:
        stream = container.add_stream("mpeg2video", rate=25, options={"flags": "+ildct+ilme"})
        stream.width, stream.height, stream.pix_fmt = 32, 32, "yuv420p"
        for index in range(2):
            frame = av.VideoFrame.from_ndarray(scene(index, 32).astype(np.uint8), format="rgb24")
            container.mux(stream.encode(frame.reformat(format="yuv420p")))
        container.mux(stream.encode(None))
    assert run(model, tmp_path / "in.mkv", tmp_path / "out.mkv") == 0
    assert "marked as interlaced: deinterlace it first" in capsys.readouterr().err
    assert len(look(tmp_path / "out.mkv").frames) == 2


def test_the_display_of_hdr_is_said(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import av

    with av.open(str(tmp_path / "in.mkv"), "w") as container:
        options = {"x265-params": f"log-level=none:{LIGHT}:max-cll=1000,400"}
        stream = container.add_stream("libx265", rate=25, options=options)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p10le"
        frame = av.VideoFrame.from_ndarray(scene(0).astype(np.uint8), format="rgb24")
        frame = frame.reformat(format="yuv420p10le")
        for index in range(3):
            frame.pts = index
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    assert run(model, tmp_path / "in.mkv", tmp_path / "out.mp4") == 0
    said = capsys.readouterr().err
    for words in ("mastering display metadata", "content light level"):
        assert f"not kept: the {words} of its frames" in said


CONTAINERS = {
    "a.avi": "mpeg4",
    "b.avi": "libx264",
    "a.ts": "libx264",
    "a.m2ts": "mpeg2video",
    "a.mpg": "mpeg2video",
    "a.vob": "mpeg2video",
    "a.flv": "libx264",
    "a.wmv": "wmv2",
    "a.webm": "libvpx-vp9",
    "a.y4m": "rawvideo",
}


@pytest.mark.parametrize(("name", "codec"), CONTAINERS.items())
def test_containers(tmp_path: Path, model: Path, name: str, codec: str) -> None:
    import av

    kind = {"a.y4m": "yuv4mpegpipe", "a.m2ts": "mpegts"}.get(name)
    options = {"mpegts_m2ts_mode": "1"} if name == "a.m2ts" else {}
    with av.open(str(tmp_path / name), "w", format=kind, options=options) as container:
        stream = container.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt = 32, 24, "yuv420p"
        for index in range(6):
            frame = av.VideoFrame.from_ndarray(scene(index).astype(np.uint8), format="rgb24")
            frame = frame.reformat(format="yuv420p")
            frame.pts = index
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    assert Path(name).suffix in READ_SUFFIXES
    assert run(model, tmp_path / name, tmp_path / "out.mkv", "--crf", "1") == 0
    made, source = look(tmp_path / "out.mkv"), look(tmp_path / name)
    assert np.diff(np.array(made.times, float)).tolist() == pytest.approx([0.04] * 5, abs=2e-3)
    for frame, before in zip(made.frames, source.frames, strict=True):
        assert np.abs(np.subtract(planes(frame)[0], planes(before)[0], dtype=float)).mean() < 2


@pytest.mark.parametrize("name", ["out.gif", "out.avi", "out.ts", "out.webm", "out.foo", "o.7z"])
def test_an_output_of_an_unknown_suffix_is_no_folder(
    tmp_path: Path, model: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = save_video(tmp_path / "in.mp4", STEADY)
    frames = save_frames(tmp_path / "frames", 2)
    for place, more in ((source, []), (frames, ["--video"]), (frames, [])):
        assert run(model, place, tmp_path / name, *more) == 2
        said = capsys.readouterr().err
        if place == source:
            assert "expected a video (.mp4, .m4v, .mov, .mkv)" in said
        else:
            assert f"looks like a {Path(name).suffix} file: expected a folder, since" in said
        assert not (tmp_path / name).exists()
    assert run(model, frames / "f1.png", tmp_path / name) == 2
    assert not (tmp_path / name).exists()
    assert run(model, frames, f"{tmp_path / name}/") == 0
    assert (tmp_path / name / "f1.png").is_file()


@pytest.mark.parametrize("name", ["in.ogv", "in.rmvb", "in.mkv"])
def test_other_containers_name_the_line_that_rewrites_them(
    tmp_path: Path, model: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(b"OggS" + bytes(300))
    assert run(model, tmp_path / name, tmp_path / "out.mp4") == 2
    assert "ffmpeg -i IN -c copy OUT.mkv" in capsys.readouterr().err
