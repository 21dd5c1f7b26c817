"""Masks and references of ``nystra run``: pairing, meaning, invalid input."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from auxiliary_models import COPIER, FILLER, HOLE, hole, make_image, save, save_roles
from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.runtime import ImageData, RunOptions, Session, read_image, run_images, write_image
from nystra.runtime.tasks.restoration.auxiliary_roles import read_mask
from nystra.runtime.tasks.restoration.restorer import restorer_for
from runtime_models import nystra_metadata, save_upscaler


@pytest.fixture
def filler(tmp_path: Path) -> Path:
    return save(tmp_path / "filler.onnx", FILLER.format(c=3, h="h", w="w"), "mask", 3)


def expected(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return np.where(mask > 0, np.float32(np.round(HOLE * 255) / 255), values)


def test_one_image_and_its_mask(tmp_path: Path, filler: Path) -> None:
    write_image(tmp_path / "a.png", ImageData(make_image()))
    write_image(tmp_path / "m.png", ImageData(hole()))
    (result,) = run_images(
        filler,
        tmp_path / "a.png",
        tmp_path / "o.png",
        RunOptions(mask=tmp_path / "m.png"),
        threads=1,
    )
    back = read_image(tmp_path / "o.png").pixels
    np.testing.assert_allclose(back, expected(make_image(), hole()), atol=1e-6)
    assert (result.warnings, result.tiles) == ([], 1)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("model_channels", [1, 3])
def test_gray_and_color(tmp_path: Path, channels: int, model_channels: int) -> None:
    graph = FILLER.format(c=model_channels, h="h", w="w")
    path = save(tmp_path / "m.onnx", graph, "mask", model_channels)
    restorer = restorer_for(Session(path, threads=1))
    values = make_image(channels=channels)
    got, _ = restorer(values, auxiliary={"mask": hole()})
    np.testing.assert_allclose(got, np.where(hole() > 0, HOLE, values), atol=1e-6)


def test_a_huge_image_is_never_tiled(
    tmp_path: Path, filler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nystra.runtime.tiling.memory_meter.available_memory", lambda: 1 << 28)
    restorer = restorer_for(Session(filler, threads=1))
    _, tiles = restorer(make_image(300, 400), auxiliary={"mask": hole(300, 400)})
    assert tiles == 1
    with pytest.raises(NystraError, match="needs the whole image"):
        restorer(make_image(), 4, auxiliary={"mask": hole()})


def test_what_cannot_fit_is_refused_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nystra.runtime.tiling.memory_meter.available_memory", lambda: 10_000_000)
    graph = FILLER.format(c=3, h="h", w="w")
    more = {"nystra.quadratic_bytes": "2.0", "nystra.tiling": "internal"}
    session = Session(save(tmp_path / "m.onnx", graph, "mask", 3, **more))
    restorer = replace(restorer_for(session), meter=None)  # which would find that the file lies
    restorer(make_image(40, 50), auxiliary={"mask": hole(40, 50)})  # 2 * 2000^2 bytes fit
    with pytest.raises(NystraError, match="needs about 10 MiB for an image of 60x40"):
        restorer(make_image(40, 60), auxiliary={"mask": hole(40, 60)})


def test_fixed_size(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", FILLER.format(c=3, h=16, w=16), "mask", 3)
    restorer = restorer_for(Session(path, threads=1))
    got, _ = restorer(make_image(), auxiliary={"mask": hole()})
    np.testing.assert_allclose(got, np.where(hole() > 0, HOLE, make_image()), atol=1e-6)
    with pytest.raises(NystraError, match="takes exactly 16x16 pixels"):
        restorer(make_image(8, 17), auxiliary={"mask": hole(8, 17)})


def test_folders_are_paired_by_name(tmp_path: Path, filler: Path) -> None:
    images, masks = tmp_path / "in", tmp_path / "masks"
    for folder in (images, masks):
        folder.mkdir()
    for name in ("a.png", "b.tif", "c.png", "d.png"):
        write_image(images / name, ImageData(make_image()))
    for name in ("a.png", "b.png", "d.png", "d.tif"):
        write_image(masks / name, ImageData(hole()))
    write_image(masks / "d.png", ImageData(hole(9, 12)), overwrite=True)
    results = run_images(filler, images, tmp_path / "out", RunOptions(mask=masks), threads=1)
    errors = {Path(result.input).name: result.error for result in results}
    assert (errors["a.png"], errors["b.tif"]) == (None, None)
    assert "holds no mask for c.png: expected c.png" in errors["c.png"]
    assert "is 12x9 pixels, its image 12x8: expected the same size" in errors["d.png"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.png", "b.tif"]


def test_one_mask_for_a_folder(tmp_path: Path, filler: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.png", "b.png"):
        write_image(tmp_path / "in" / name, ImageData(make_image()))
    write_image(tmp_path / "m.png", ImageData(hole()))
    results = run_images(
        filler, tmp_path / "in", tmp_path / "out", RunOptions(mask=tmp_path / "m.png"), threads=1
    )
    assert [result.error for result in results] == [None, None]


def test_several_masks_of_one_stem(tmp_path: Path, filler: Path) -> None:
    (tmp_path / "masks").mkdir()
    write_image(tmp_path / "a.jpg", ImageData(make_image()))
    for name in ("a.png", "a.tif"):
        write_image(tmp_path / "masks" / name, ImageData(hole()))
    with pytest.raises(NystraError, match=r"several masks for a\.jpg: a\.png, a\.tif"):
        run_images(
            filler, tmp_path / "a.jpg", tmp_path / "o.png", RunOptions(mask=tmp_path / "masks")
        )


def test_what_a_mask_may_be(tmp_path: Path) -> None:
    size = (8, 12)

    def read(pixels: np.ndarray, alpha: np.ndarray | None = None) -> tuple[np.ndarray, list[str]]:
        path = tmp_path / "m.png"
        write_image(path, ImageData(pixels, alpha), overwrite=True)
        return read_mask(read_image(path), size, f"the mask {path}")

    mask, warnings = read(np.repeat(hole(), 3, 2))
    np.testing.assert_array_equal(mask, hole())
    assert warnings == []
    mask, warnings = read(np.clip(hole() * 0.94 + 0.03, 0, 1))  # as JPEG leaves it
    np.testing.assert_array_equal(mask, hole())
    assert warnings == []
    soft = hole() * 0.8
    soft[0, 0] = 0.4
    mask, (text,) = read(soft)
    np.testing.assert_array_equal(mask, hole())
    assert "is not black and white: 19.79% of it is gray" in text
    mask, (text,) = read(np.zeros((*size, 1), np.float32))
    assert mask.sum() == 0
    assert "nothing would be filled" in text
    mask, (text,) = read(np.ones((*size, 1), np.float32))
    assert mask.min() == 1
    assert "none of the image is kept" in text
    mask, _ = read(np.ones((*size, 1), np.float32), hole()[:, :, 0])
    np.testing.assert_array_equal(mask, hole())


def test_reference(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", COPIER, "reference", 3, input_channels="1")
    gray, color = make_image(channels=1) * 0.5, np.full((5, 4, 3), (0.1, 0.2, 0.3), np.float32)
    write_image(tmp_path / "a.png", ImageData(gray, bits=16))
    write_image(tmp_path / "r.png", ImageData(color, bits=16))
    run_images(
        path,
        tmp_path / "a.png",
        tmp_path / "o.png",
        RunOptions(reference=tmp_path / "r.png"),
        threads=1,
    )
    back = read_image(tmp_path / "o.png")
    assert not back.gray
    np.testing.assert_allclose(back.pixels, gray + color[:1, :1], atol=1e-4)
    restorer = restorer_for(Session(path, threads=1))
    luma = (make_image() @ np.array([0.299, 0.587, 0.114], np.float32))[:, :, None]
    got, tiles = restorer(make_image(), auxiliary={"reference": color[:, :, :1]})
    np.testing.assert_allclose(got, np.repeat(luma + 0.1, 3, 2), atol=1e-5)
    assert tiles == 1


def test_bad_input_writes_nothing(tmp_path: Path, filler: Path) -> None:
    write_image(tmp_path / "a.png", ImageData(make_image()))
    write_image(tmp_path / "m.png", ImageData(hole()))
    write_image(tmp_path / "large.png", ImageData(hole(9, 13)))
    (tmp_path / "bad.png").write_bytes(b"no image")
    (tmp_path / "empty").mkdir()
    plain = save_upscaler(tmp_path / "plain.onnx", metadata=nystra_metadata())
    before = sorted(tmp_path.rglob("*"))
    for model, mask, reference, message in (
        (filler, None, None, r"needs a mask: give `mask` MASK\.png \(white = fill\)"),
        (plain, "m.png", None, r"the model has no mask input: omit `mask`"),
        (filler, "m.png", "m.png", "has no reference input: omit `reference`"),
        (filler, "absent.png", None, "no mask or folder at"),
        (filler, "bad.png", None, "not an image"),
        (filler, "empty", None, r"holds no mask for a\.png"),
        (filler, "large.png", None, "is 13x9 pixels, its image 12x8"),
    ):
        with pytest.raises(NystraError, match=message) as caught:
            run_images(
                model,
                tmp_path / "a.png",
                tmp_path / "o.png",
                RunOptions(
                    mask=mask and tmp_path / mask, reference=reference and tmp_path / reference
                ),
                threads=1,
            )
        assert caught.value.exit_code == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_restorer_says_what_is_wrong(filler: Path) -> None:
    restorer = restorer_for(Session(filler, threads=1))
    mask = hole()[:, :, 0]
    with pytest.raises(NystraError, match="fills holes and needs a mask: give `mask`"):
        restorer(make_image())
    with pytest.raises(NystraError, match="has no reference input: omit `reference`"):
        restorer(make_image(), auxiliary={"mask": mask, "reference": make_image()})
    for wrong, size in ((mask[:7], "12x7"), (mask[:, :5], "5x8"), (hole(9, 12), "12x9")):
        message = f"the mask is {size} pixels, its image 12x8: expected the same size"
        with pytest.raises(NystraError, match=message):
            restorer(make_image(), auxiliary={"mask": wrong})


THREE = """
f (float[b,3,h,w] input, float[b,1,h,w] hole, float[b,3,ah,aw] first, float[b,3,sh,sw] second)
=> (float[b,3,h,w] output) <float half = {0.5}> {
  mask = Greater (hole, half)
  other = ReduceMean <keepdims = 1> (first, axes)
  another = ReduceMax <keepdims = 1> (second, axes)
  sum = Add (other, another)
  output = Where (mask, sum, input)
}
"""


def test_any_number_of_inputs_by_role_or_name(tmp_path: Path) -> None:
    roles = {"input": "image", "hole": "mask", "first": "reference", "second": "reference"}
    path = save_roles(tmp_path / "m.onnx", THREE, roles, 3)
    level = {"first": 0.2, "second": 0.4}
    for name, value in level.items():
        write_image(tmp_path / f"{name}.png", ImageData(np.full((5, 4, 3), value, np.float32)))
    write_image(tmp_path / "a.png", ImageData(make_image()))
    write_image(tmp_path / "m.png", ImageData(hole()))
    options = RunOptions(
        mask=tmp_path / "m.png", inputs={name: tmp_path / f"{name}.png" for name in level}
    )
    (result,) = run_images(path, tmp_path / "a.png", tmp_path / "o.png", options, threads=1)
    assert result.status == "done"
    filled = np.float32(round(0.6 * 255) / 255)
    got = read_image(tmp_path / "o.png").pixels
    np.testing.assert_allclose(got, np.where(hole() > 0, filled, make_image()), atol=1e-6)
    less = replace(options, inputs={"first": tmp_path / "first.png"})
    with pytest.raises(NystraError, match="copies and needs a second: give `second`"):
        run_images(path, tmp_path / "a.png", tmp_path / "p.png", less, threads=1)
    more = replace(options, reference=tmp_path / "m.png")
    with pytest.raises(NystraError, match="the model has no reference input: omit `reference`"):
        run_images(path, tmp_path / "a.png", tmp_path / "p.png", more, threads=1)


def test_command_line(tmp_path: Path, filler: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_image(tmp_path / "a.png", ImageData(make_image()))
    write_image(tmp_path / "m.png", ImageData(hole() * 0.8))
    given = ["run", str(filler), "-i", str(tmp_path / "a.png"), "-o", str(tmp_path / "o.png")]
    assert main(given) == 2
    assert "--mask MASK.png" in capsys.readouterr().err
    assert main([*given, "--mask", str(tmp_path / "m.png"), "--threads", "1"]) == 0
    assert "is not black and white" in capsys.readouterr().err
    assert (tmp_path / "o.png").exists()
