"""Images that are read, restored and written row by row: the same results, constant memory."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

from nystra.core.errors import NystraError
from nystra.runtime import run_images
from nystra.runtime.images.image_data import ImageData, Metadata
from nystra.runtime.images.images import read_image, write_image
from nystra.runtime.images.strips import write_strips
from nystra.runtime.tasks.restoration import image_job, in_strips
from nystra.runtime.tasks.restoration.options import RunOptions
from nystra.runtime.tiling.run_tiled import run_strips, run_tiled
from nystra.runtime.tiling.tile_plan import plan_tiles


def blurred(tiles: np.ndarray) -> np.ndarray:
    """A network of scale 2 that sees two pixels to each side."""
    padded = np.pad(tiles, ((0, 0), (0, 0), (2, 2), (2, 2)), mode="edge")
    rows, columns = tiles.shape[2:]
    mean = sum(padded[:, :, y : y + rows, x : x + columns] for y in (0, 2, 4) for x in (0, 1, 4))
    return np.repeat(np.repeat(mean / 9, 2, axis=2), 2, axis=3)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    ("size", "tile", "overlap", "multiple", "fixed"),
    [
        ((70, 50), 20, 4, 1, False),
        ((71, 53), (16, 24), 6, 8, False),
        ((64, 40), (64, 16), 2, 1, False),
        ((33, 90), (16, 16), 5, 1, True),
        ((40, 30), 64, 8, 1, False),
        ((17, 31), 8, 0, 8, False),
    ],
)
def test_strips_give_the_bits_of_the_whole(size, tile, overlap, multiple, fixed, batch) -> None:
    image = np.random.default_rng(0).random((1, 3, *size), dtype=np.float32)
    whole = run_tiled(blurred, image, tile, overlap, 2, multiple, fixed=fixed, batch=batch)
    place = 0

    def read(rows: int) -> np.ndarray:
        nonlocal place
        place += rows
        assert place <= size[0]
        return image[:, :, place - rows : place]

    plan = plan_tiles(size, tile, overlap, multiple, fixed=fixed)
    strips = list(run_strips(blurred, read, plan, 2, batch=batch))
    np.testing.assert_array_equal(np.concatenate(strips, axis=1), whole[0])
    assert place == size[0]
    assert len(strips) >= (1 if len(plan.rows) == 1 else 2)


BLUR = (
    "f (float[b,{c},h,w] input) => (float[b,{c},H,W] output) "
    "<float[4] s = {{1, 1, 2, 2}}> "
    "{{m = AveragePool <kernel_shape = [5, 5], pads = [2, 2, 2, 2]> (input) "
    'output = Resize <mode = "nearest"> (m, , s)}}'
)


def model(folder: Path, channels: int = 3) -> Path:
    graph = BLUR.format(c=channels)
    path = folder / f"x2_{channels}.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]>{graph}'), path)
    return path


def picture(channels: int, bits: int) -> ImageData:
    peak = (1 << bits) - 1
    values = np.random.default_rng(0).integers(0, peak + 1, (170, 130, channels))
    exif = b"II*\0\x08\0\0\0\1\0\x3b\1\2\0\4\0\0\0abc\0\0\0\0\0"
    fields = {"exif-data": exif, "xmp-data": b"<x:xmpmeta/>", "png-comment-0-Title": "a title"}
    metadata = Metadata("PNG", fields)
    pixels = (values / np.float32(peak)).astype(np.float32)
    return ImageData(pixels, bits=bits, dpi=(300, 300), metadata=metadata)


def without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore every image row by row, 128 rows at most at a time."""
    monkeypatch.setattr(image_job, "_EARLY", 0)
    monkeypatch.setattr(image_job, "LARGE", 0)
    monkeypatch.setattr(image_job, "_SMALL_FILE", 0)
    monkeypatch.setattr(in_strips, "_WINDOW", 0)


@pytest.mark.full
@pytest.mark.parametrize("takes", [1, 3])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("kind", "bits"), [("png", 8), ("png", 16), ("tif", 16), ("jpg", 8)])
def test_the_file_is_that_of_a_whole_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, bits: int, channels: int, takes: int
) -> None:
    here = tmp_path / f"in.{kind}"
    write_image(here, picture(channels, bits))
    network, how = model(tmp_path, takes), RunOptions(tile=64, overlap=8, quiet=True)
    (whole,) = run_images(network, here, tmp_path / f"whole.{kind}", how, threads=1)
    without_limit(monkeypatch)
    calls = []
    monkeypatch.setattr(in_strips, "write_strips", lambda *a: calls.append(a) or write_strips(*a))
    (result,) = run_images(network, here, tmp_path / f"strips.{kind}", how, threads=1)
    assert len(calls) == 1
    assert (result.tiles, result.output_size) == (whole.tiles, whole.output_size)
    assert result.warnings == whole.warnings
    expected = read_image(tmp_path / f"whole.{kind}")
    got = read_image(tmp_path / f"strips.{kind}")
    np.testing.assert_array_equal(got.pixels, expected.pixels)
    assert (got.bits, got.dpi, got.metadata) == (bits, expected.dpi, expected.metadata)
    assert got.metadata.fields["xmp-data"] == b"<x:xmpmeta/>"
    assert ("exif-data" in got.metadata.fields) == (kind != "tif")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {network.name, here.name, f"whole.{kind}", f"strips.{kind}"}


def test_a_folder_with_large_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.png", "b.png", "c.tif"):
        write_image(tmp_path / "in" / name, picture(3, 8))
    content = (tmp_path / "in" / "b.png").read_bytes()
    (tmp_path / "in" / "b.png").write_bytes(content[: len(content) // 2])
    small = ImageData(np.full((9, 9, 3), 0.5, np.float32))
    write_image(tmp_path / "in" / "d.png", small)
    write_image(tmp_path / "in" / "e.webp", picture(3, 8))
    without_limit(monkeypatch)
    how = RunOptions(quiet=True)
    results = run_images(model(tmp_path), tmp_path / "in", tmp_path / "out", how, threads=1)
    assert [result.status for result in results] == ["done", "failed", "done", "done", "done"], (
        results
    )
    assert "b.png is damaged or truncated" in (results[1].error or "")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["a.png", "c.tif", "d.png", "e.webp"]
    assert read_image(tmp_path / "out/a.png").size == (340, 260)


def test_alpha_and_orientation_are_held_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = picture(3, 8)
    alpha = np.linspace(0, 1, 170 * 130, dtype=np.float32).reshape(170, 130)
    write_image(tmp_path / "alpha.png", ImageData(image.pixels, alpha))
    exif = Image.Exif()
    exif[274] = 6
    Image.fromarray((image.pixels * 255).astype(np.uint8)).save(tmp_path / "side.png", exif=exif)
    without_limit(monkeypatch)
    for name, size in (("alpha.png", (340, 260)), ("side.png", (260, 340))):
        run_images(model(tmp_path), tmp_path / name, tmp_path / f"x2_{name}", threads=1)
        assert read_image(tmp_path / f"x2_{name}").size == size
    assert read_image(tmp_path / "x2_alpha.png").alpha is not None


def test_a_wrong_range_or_a_damaged_image_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = "f (float[b,3,h,w] input) => (float[b,3,h,w] output) <float k = {{{k}}}>"
    write_image(tmp_path / "in.tif", picture(3, 8))
    without_limit(monkeypatch)
    for k, message in (("99", "far outside 0..1"), ("inf", "infinite")):
        text = f'<ir_version: 10, opset_import: ["" : 20]>{graph.format(k=k)}'
        path = tmp_path / "m.onnx"
        constant = onnx.parser.parse_model(text.replace("inf", "1") + "{output = Mul (input, k)}")
        if k == "inf":
            infinite = onnx.numpy_helper.from_array(np.array(np.inf, np.float32), "k")
            constant.graph.initializer[0].CopyFrom(infinite)
        onnx.save(constant, path)
        with pytest.raises(NystraError, match=message):
            run_images(path, tmp_path / "in.tif", tmp_path / "out.tif", threads=1, range="0..1")
    content = bytearray((tmp_path / "in.tif").read_bytes())
    content[100:110] = bytes(10)
    (tmp_path / "in.tif").write_bytes(content)
    with pytest.raises(NystraError, match="damaged"):
        run_images(model(tmp_path), tmp_path / "in.tif", tmp_path / "out.tif", threads=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.tif", "m.onnx", "x2_3.onnx"]
