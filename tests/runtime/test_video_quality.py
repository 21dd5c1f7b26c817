"""Frames against their ground truth: PSNR and SSIM per frame, and flicker."""

import json
from pathlib import Path

import numpy as np
import pytest

from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.runtime import ImageData, Session, VideoOptions, psnr, read_image, write_image
from nystra.runtime.metrics.image_quality import Flicker
from nystra.runtime.model.references import ReferenceCase, write_references
from nystra.runtime.tasks.video.quality import validate_clip
from runtime_models import nystra_metadata, save_upscaler
from video_files import save_frames, save_temporal_mean, scene, temporal_mean


def flicker(errors: list[np.ndarray], channel: str = "rgb", border: int = 0) -> float:
    """Return the flicker of a video with these errors, on a moving ground truth."""
    figure = Flicker(border, channel)
    for index, error in enumerate(errors):
        truth = scene(index).astype(np.float64) / 255
        figure.add(truth + error, truth)
    return figure.value


def test_flicker_by_hand() -> None:
    still = np.random.default_rng(0).normal(0, 0.1, (24, 32, 3))
    assert flicker([still] * 5) == pytest.approx(0, abs=1e-9)
    assert flicker([still]) == 0.0
    step = np.full((24, 32, 3), 2 / 255)
    assert flicker([step, -step, step]) == pytest.approx(4)
    assert flicker([step, step, -step, -step]) == pytest.approx(4 / 3)
    half = step.copy()
    half[:, :16] = 0
    assert flicker([half, -half]) == pytest.approx(4 / np.sqrt(2))
    assert flicker([half, -half], border=8) == pytest.approx(4 / np.sqrt(2))
    assert flicker([step, -step], "y") == pytest.approx(4 * 219 / 255, rel=1e-6)


@pytest.fixture
def frames(tmp_path: Path) -> tuple[Path, Path]:
    """Return small frames and the mean of their neighbors, two of which flicker."""
    low, high = save_frames(tmp_path / "low", 11, (16, 16)), tmp_path / "high"
    high.mkdir()
    means = temporal_mean([scene(index, 16, 16).astype(np.float32) / 255 for index in range(11)])
    for index, mean in enumerate(means):
        pixels = mean + (10 / 255 if index in (4, 9) else 0)
        write_image(high / f"f{index + 1}.png", ImageData(pixels.astype(np.float32)))
    return low, high


def test_a_network_of_frames(tmp_path: Path, frames: tuple[Path, Path]) -> None:
    session = Session(save_temporal_mean(tmp_path / "mean.onnx", 8), threads=1)
    how = VideoOptions(time_overlap=4)
    report = validate_clip(session, *frames, crop_border=0, channel="rgb", options=how)
    assert [image.name for image in report.images] == [f"f{index + 1}.png" for index in range(11)]
    quality = [image.psnr for image in report.images]
    assert [index for index in range(11) if quality[index] < 40] == [4, 9]
    assert report.flicker is not None
    truth = [read_image(frames[1] / f"f{index + 1}.png").pixels for index in range(11)]
    low = [read_image(frames[0] / f"f{index + 1}.png").pixels for index in range(11)]
    errors = np.subtract(truth, np.rint(np.stack(temporal_mean(low)) * 255) / 255) * 255
    steps = np.sqrt(np.mean(np.diff(errors, axis=0) ** 2, axis=(1, 2, 3)))
    assert report.flicker == pytest.approx(steps.mean(), abs=0.05)
    assert np.flatnonzero(steps > 5).tolist() == [3, 4, 8, 9]


@pytest.mark.full
def test_frame_by_frame_it_is_the_quality_of_images(
    tmp_path: Path, frames: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_upscaler(tmp_path / "model.onnx", metadata=nystra_metadata())
    image = np.random.default_rng(1).random((1, 3, 16, 16)).astype(np.float32)
    case = ReferenceCase({"input": image}, {"output": image.repeat(2, 2).repeat(2, 3)})
    write_references(tmp_path / "model.npz", [case], {"tolerances": [1e-4]})
    given = ["--images", str(frames[0]), "--truth", str(frames[1]), "--threads", "1"]
    assert main(["validate", str(model), *given, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)["quality"]
    assert "flicker" not in plain
    assert main(["validate", str(model), *given, "--video", "--json"]) == 0
    video = json.loads(capsys.readouterr().out)["quality"]
    assert video["psnr"] == pytest.approx(plain["psnr"])
    assert [restored["name"] for restored in video["images"]] == [
        f"f{i + 1}.png" for i in range(11)
    ]
    assert video["flicker"] > 1
    own = [read_image(folder / "f1.png").pixels for folder in frames]
    expected = psnr(own[0].repeat(2, 0).repeat(2, 1), own[1], crop_border=2, channel="y")
    assert video["images"][0]["psnr"] == pytest.approx(expected)
    assert main(["validate", str(model), *given, "--video"]) == 0
    assert f"flicker {video['flicker']:.3f} of 255" in capsys.readouterr().out
    assert main(["validate", str(model), *given, "--video", "--pad", "official"]) == 2
    assert main(["validate", str(model), "--video"]) == 2
    gate(model, given, frames[1], capsys)


def gate(model: Path, given: list[str], high: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``nystra check`` compares flicker with the baseline, and reports it if it is missing."""
    baseline = str(model.with_name("baseline.json"))
    check = ["check", str(model), "--baseline", baseline]
    assert main([*check, *given, "--video", "--update", "-q"]) == 0
    assert main([*check, *given, "--video", "-q"]) == 0
    capsys.readouterr()
    assert main([*check, *given]) == 2
    assert "has quality_flicker" in capsys.readouterr().err
    brighter = read_image(high / "f8.png").pixels + np.float32(2 / 255)
    write_image(high / "f8.png", ImageData(brighter), overwrite=True)
    assert main([*check, *given, "--video", "--json"]) == 1
    items = {
        entry["item"]: entry["state"] for entry in json.loads(capsys.readouterr().out)["items"]
    }
    assert items["quality_flicker"] == "failed"


@pytest.mark.parametrize(
    ("place", "size", "words"),
    [
        (0, (7, 9), r"f2\.png is 9x7"),  # an input of another size than the first one
        (1, (7, 9), r"ground truth f2\.png, \("),
        (1, None, r"f2\.png"),  # no truth
    ],
)
def test_frames_that_do_not_fit(
    tmp_path: Path,
    frames: tuple[Path, Path],
    place: int,
    size: tuple[int, int] | None,
    words: str,
) -> None:
    session = Session(save_upscaler(tmp_path / "m.onnx", metadata=nystra_metadata()), threads=1)
    (frames[place] / "f2.png").unlink()
    if size is not None:
        write_image(frames[place] / "f2.png", ImageData(np.zeros((*size, 3), np.float32)))
    with pytest.raises(NystraError, match=words):
        validate_clip(session, *frames, crop_border=0, channel="rgb")
