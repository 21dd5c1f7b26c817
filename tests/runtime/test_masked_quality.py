"""Quality of models with a mask or a reference: inside and outside the hole, invalid input."""

import json
from pathlib import Path

import numpy as np
import pytest

from auxiliary_models import COPIER, FILLER, HOLE, hole, make_image, save
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.runtime import ImageData, Session, validate_quality, write_image, write_references
from nystra.runtime.model.references import ReferenceCase
from runtime_models import nystra_metadata, save_upscaler

SIZE = (16, 20)


@pytest.fixture
def filler(tmp_path: Path) -> Path:
    """A model that fills with 0.25, its recorded outputs, and two images to fill."""
    path = save(tmp_path / "filler.onnx", FILLER.format(c=3, h="h", w="w"), "mask", 3)
    image = np.moveaxis(make_image(*SIZE), 2, 0)[None]
    mask = np.moveaxis(hole(*SIZE), 2, 0)[None]
    case = ReferenceCase(
        {"input": image, "mask": mask}, {"output": np.where(mask > 0, np.float32(HOLE), image)}
    )
    write_references(tmp_path / "filler.npz", [case], {})
    for folder in ("in", "truth", "masks"):
        (tmp_path / folder).mkdir()
    for name in ("a.png", "b.png"):
        truth = make_image(*SIZE) if name == "a.png" else 1 - make_image(*SIZE)
        write_image(tmp_path / "truth" / name, ImageData(truth))
        write_image(tmp_path / "in" / name, ImageData(truth * (1 - hole(*SIZE))))
        write_image(tmp_path / "masks" / name, ImageData(hole(*SIZE)))
    return path


def luma(values: np.ndarray) -> np.ndarray:
    return (values @ [65.481, 128.553, 24.966] + 16) / 255


@pytest.mark.parametrize("channel", ["rgb", "y"])
@pytest.mark.parametrize("masks", ["masks", "masks/a.png"])
def test_inside_and_outside(tmp_path: Path, filler: Path, channel: str, masks: str) -> None:
    report = validate_quality(
        Session(filler, threads=1),
        tmp_path / "in",
        tmp_path / "truth",
        channel=channel,
        mask=tmp_path / masks,
    )
    filled = np.full((3, 6, 3), np.round(HOLE * 255) / 255)
    psnrs, l1s = [], []
    for truth, quality in zip(
        (make_image(*SIZE), 1 - make_image(*SIZE)), report.images, strict=True
    ):
        pair = filled, truth[2:5, 3:9]
        error = pair[0] - pair[1] if channel == "rgb" else luma(pair[0]) - luma(pair[1])
        psnrs.append(-10 * np.log10(np.mean(error**2)))
        l1s.append(np.abs(error).mean())
        inside, outside = quality.inside, quality.outside
        assert inside is not None
        assert outside is not None
        assert (inside.psnr, inside.l1) == (
            pytest.approx(psnrs[-1], abs=1e-3),
            pytest.approx(l1s[-1], abs=1e-5),
        )
        assert (inside.share, outside.share) == (18 / 320, 1 - 18 / 320)
        assert (outside.psnr, outside.l1) == (np.inf, 0.0)
        # the whole: the same squared error, spread over all pixels
        assert quality.psnr == pytest.approx(psnrs[-1] - 10 * np.log10(18 / 320), abs=1e-3)
    document = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert document["inside"]["psnr"] == pytest.approx(np.mean(psnrs), abs=1e-3)
    assert document["inside"]["l1"] == pytest.approx(np.mean(l1s), abs=1e-5)
    assert document["outside"]["psnr"] == document["images"][0]["outside"]["psnr"] == 200.0
    assert report.warnings == ()


def test_a_border_is_left_out_of_the_hole_too(tmp_path: Path, filler: Path) -> None:
    session = Session(filler, threads=1)
    folders = tmp_path / "in", tmp_path / "truth"
    cut = validate_quality(session, *folders, 2, mask=tmp_path / "masks").images[0].inside
    assert cut is not None
    assert cut.share == 18 / (12 * 16)
    write_image(tmp_path / "m.png", ImageData(hole(*SIZE) * 0.8))
    report = validate_quality(session, *folders, mask=tmp_path / "m.png")
    assert len(report.warnings) == 1  # said once, not once an image
    assert "is not black and white" in report.warnings[0]
    for value, what in ((0, "white"), (1, "black")):
        flat = ImageData(np.full((*SIZE, 1), value, np.float32))
        write_image(tmp_path / "m.png", flat, overwrite=True)
        with pytest.raises(NystraError, match=rf"the mask of a\.png has no {what} pixels inside"):
            validate_quality(session, *folders, mask=tmp_path / "m.png")


def test_a_reference(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", COPIER, "reference", 3, input_channels="1")
    for folder in ("in", "truth"):
        (tmp_path / folder).mkdir()
    gray = np.floor(make_image(16, 16, 1) * 100) / np.float32(255)
    color = np.full((5, 4, 3), (0.2, 0.4, 0.6), np.float32)
    write_image(tmp_path / "in" / "a.png", ImageData(gray, bits=16))
    write_image(tmp_path / "r.png", ImageData(color, bits=16))
    write_image(tmp_path / "truth" / "a.png", ImageData(gray + color[:1, :1]))
    session = Session(path, threads=1)
    folders = tmp_path / "in", tmp_path / "truth"
    report = validate_quality(session, *folders, channel="rgb", reference=tmp_path / "r.png")
    assert report.psnr > 100  # up to float32
    assert (report.inside, "inside" in report.as_dict()) == (None, False)
    with pytest.raises(NystraError, match="the model copies and needs a reference"):
        validate_quality(session, *folders)


def test_command_line(tmp_path: Path, filler: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["validate", str(filler), "--threads", "1", "--library", "none"]
    given += ["--images", str(tmp_path / "in"), "--truth", str(tmp_path / "truth")]
    assert main([*given, "--mask", str(tmp_path / "masks"), "--channel", "rgb"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (row,) = (line for line in lines if line.startswith("mean"))
    assert "5.6%" in row
    assert row.endswith("0.0e+00")
    assert main([*given, "--mask", str(tmp_path / "masks"), "--json"]) == 0
    quality = json.loads(capsys.readouterr().out)["quality"]
    assert quality["inside"]["share"] == pytest.approx(18 / 320)


def test_bad_input_is_exit_2(
    tmp_path: Path, filler: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--images", str(tmp_path / "in"), "--truth", str(tmp_path / "truth")]
    write_image(tmp_path / "large.png", ImageData(hole(17, 20)))
    (tmp_path / "empty").mkdir()
    for more, message in (
        (folders, "needs a mask: give --mask MASK.png (white = fill)"),
        ([*folders, "--mask", "absent.png"], "no mask or folder at"),
        ([*folders, "--mask", "empty"], "holds no mask for a.png"),
        ([*folders, "--mask", "large.png"], "is 20x17 pixels, its image 20x16"),
        ([*folders, "--mask", "masks", "--reference", "masks"], "has no reference input"),
        (["--mask", "masks"], "--mask, --reference and --inputs belong to --images and --truth"),
    ):
        places = [
            str(tmp_path / argument) if before in ("--mask", "--reference") else argument
            for before, argument in pairs(more)
        ]
        assert main(["validate", str(filler), "--threads", "1", *places]) == 2, message
        assert message in capsys.readouterr().err
    plain = save_upscaler(tmp_path / "plain.onnx", metadata=nystra_metadata())
    with pytest.raises(NystraError, match="the model has no mask input"):
        validate_quality(
            Session(plain, threads=1), tmp_path / "in", tmp_path / "truth", mask=tmp_path / "masks"
        )


def pairs(words: list[str]) -> list[tuple[str, str]]:
    """Each word with the one before it."""
    return list(zip(["", *words], words, strict=False))
