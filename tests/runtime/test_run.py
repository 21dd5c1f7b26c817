"""Images through a model file: outputs, and refusals that write nothing."""

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.runtime import ImageData, RunOptions, Session, read_image, run_images, write_image
from nystra.runtime.images.image_data import quantize
from nystra.runtime.tasks.restoration.restorer import Restorer, restorer_for
from nystra.runtime.tiling.memory_meter import MemoryLaw, MemoryMeter
from runtime_models import nystra_metadata, save_upscaler


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_upscaler(tmp_path / "model.onnx", metadata=nystra_metadata())


def pixels(height: int, width: int, channels: int = 3, bits: int = 8) -> np.ndarray:
    peak = (1 << bits) - 1
    random = np.random.default_rng(height)
    return random.integers(0, peak + 1, (height, width, channels)).astype(np.float32) / peak


def enlarged(values: np.ndarray, scale: int = 2) -> np.ndarray:
    return np.repeat(np.repeat(values, scale, axis=0), scale, axis=1)


def test_one_image(tmp_path: Path, model: Path) -> None:
    source = ImageData(pixels(20, 30, 3, 16), np.ones((20, 30), np.float32), 16, dpi=(300, 300))
    source.alpha[:, :15] = 0  # type: ignore[index]
    write_image(tmp_path / "in.png", source)
    results = run_images(model, tmp_path / "in.png", tmp_path / "out.tif", threads=1)
    back = read_image(tmp_path / "out.tif")
    np.testing.assert_array_equal(quantize(back.pixels, 16), quantize(enlarged(source.pixels), 16))
    assert back.alpha is not None
    assert back.alpha.shape == (40, 60)
    assert back.dpi == pytest.approx((300, 300), abs=0.05)
    (result,) = results
    assert result.input_size == (30, 20)
    assert result.output_size == (60, 40)
    assert (result.tiles, result.error, result.warnings) == (1, None, [])
    assert result.output == str(tmp_path / "out.tif")


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("model_channels", [1, 3])
def test_gray_and_color(tmp_path: Path, channels: int, model_channels: int) -> None:
    path = save_upscaler(
        tmp_path / "m.onnx", 3, model_channels, metadata=nystra_metadata(3, model_channels)
    )
    values = pixels(9, 7, channels)
    write_image(tmp_path / "in.png", ImageData(values))
    results = run_images(
        path, tmp_path / "in.png", tmp_path / "out.png", RunOptions(tile=6, overlap=1)
    )
    back = read_image(tmp_path / "out.png")
    np.testing.assert_allclose(back.pixels, enlarged(values, 3), atol=1e-6)
    assert results[0].tiles == 2 * 2 * (3 if channels > model_channels else 1)


def test_folder_goes_on_after_a_bad_image(tmp_path: Path, model: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.png", "c.jpg"):
        write_image(folder / name, ImageData(pixels(8, 9)))
    (folder / "b.png").write_bytes(b"not an image")
    (folder / "notes.txt").write_text("no image")
    (folder / ".hidden.png").write_bytes(b"")
    results = run_images(model, folder, tmp_path / "new" / "out", threads=1)
    names = [Path(item.input).name for item in results]
    assert names == ["notes.txt", "a.png", "b.png", "c.jpg"]
    assert [item.status for item in results] == ["skipped", "done", "failed", "done"]
    assert "b.png is not an image" in results[2].error
    written = sorted(item.name for item in (tmp_path / "new" / "out").iterdir())
    assert written == ["a.png", "c.jpg"]
    with pytest.raises(NystraError, match=r"2 of 3 outputs exist, .* `skip_existing` .* `overwr"):
        run_images(model, folder, tmp_path / "new" / "out", threads=1)


def test_output_folder_keeps_the_name(tmp_path: Path, model: Path) -> None:
    write_image(tmp_path / "in.png", ImageData(pixels(8, 9)))
    run_images(model, tmp_path / "in.png", f"{tmp_path}/made{os.sep}", threads=1)
    assert read_image(tmp_path / "made" / "in.png").size == (16, 18)


def test_one_pixel(tmp_path: Path, model: Path) -> None:
    write_image(tmp_path / "in.png", ImageData(pixels(1, 1)))
    run_images(model, tmp_path / "in.png", tmp_path / "out.png", threads=1)
    assert read_image(tmp_path / "out.png").size == (2, 2)


@pytest.mark.full
def test_huge_image_is_tiled(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nystra.runtime.tiling.memory_meter.available_memory", lambda: 1 << 27)
    measured = MemoryLaw(200.0)  # what a process has left from other tests blurs its own measuring
    monkeypatch.setattr(MemoryMeter, "measure", lambda *_, **__: measured)
    write_image(tmp_path / "in.png", ImageData(pixels(700, 900)))
    results = run_images(model, tmp_path / "in.png", tmp_path / "out.png", threads=1)
    assert results[0].tiles > 1
    np.testing.assert_allclose(
        read_image(tmp_path / "out.png").pixels, enlarged(pixels(700, 900)), atol=1e-6
    )


def test_static_model_tiles_to_its_size(tmp_path: Path) -> None:
    path = save_upscaler(tmp_path / "m.onnx", size=(16, 16), metadata=nystra_metadata())
    restorer = restorer_for(Session(path, threads=1))
    for size in [(5, 6), (16, 16), (40, 17)]:
        output, tiles = restorer(pixels(*size))
        np.testing.assert_allclose(output, enlarged(pixels(*size)), atol=1e-6)
        assert (tiles == 1) == (max(size) <= 16)
    with pytest.raises(NystraError, match="takes exactly 16x16"):
        restorer(pixels(40, 17), tile=8)


@pytest.mark.parametrize("known", [False, True])
def test_fixed_batch_is_filled(tmp_path: Path, known: bool) -> None:
    metadata = nystra_metadata() if known else None
    path = save_upscaler(tmp_path / "m.onnx", size=(16, 16), metadata=metadata, batch=2)
    restorer = restorer_for(Session(path, threads=1))
    for size in [(5, 6), (40, 17)]:  # 1 tile, and 3 by 2
        output, tiles = restorer(pixels(*size), overlap=2)
        np.testing.assert_allclose(output, enlarged(pixels(*size)), atol=1e-6)
        assert tiles == (1 if max(size) <= 16 else 6)
    write_image(tmp_path / "in.png", ImageData(pixels(9, 40)))
    run_images(path, tmp_path / "in.png", tmp_path / "out.png", threads=1)
    assert read_image(tmp_path / "out.png").size == (18, 80)


def test_range_and_minimum() -> None:
    def function(image: np.ndarray) -> np.ndarray:
        assert image.shape[2:] == (8, 9)
        assert image.max() > 1
        return image

    restorer = Restorer(function, range=(0.0, 255.0), output_range=(0.0, 255.0), size_minimum=8)
    output, _ = restorer(pixels(2, 9))
    np.testing.assert_allclose(output, pixels(2, 9), atol=1e-6)


def test_model_of_another_program(tmp_path: Path) -> None:
    write_image(tmp_path / "in.png", ImageData(pixels(10, 12)))
    for name, channels in (("fixed", 3), ("open", "channels")):
        path = save_upscaler(tmp_path / f"{name}.onnx", 3, channels)
        run_images(path, tmp_path / "in.png", tmp_path / f"{name}.png", threads=1)
        assert read_image(tmp_path / f"{name}.png").size == (30, 36)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_model_of_another_program_in_tiles(tmp_path: Path, dtype: int) -> None:
    """Without metadata; fp16 inputs and outputs are converted."""
    path = save_upscaler(tmp_path / "m.onnx", dtype=dtype)
    write_image(tmp_path / "in.png", ImageData(pixels(60, 70)))
    assert main(["run", str(path), "-i", f"{tmp_path}/in.png", "-o", f"{tmp_path}/out.png", "-t",
                 "32", "--overlap", "8", "--threads", "1", "-q"]) == 0  # fmt: skip
    got = read_image(tmp_path / "out.png").pixels
    np.testing.assert_array_equal(quantize(got, 8), quantize(enlarged(pixels(60, 70)), 8))
    results = run_images(
        path,
        tmp_path / "in.png",
        tmp_path / "b.png",
        RunOptions(tile=32, overlap=8, quiet=True),
        threads=1,
    )
    assert results[0].tiles == 9


def save_graph(path: Path, text: str) -> Path:
    onnx.save(onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 20]>' + text), path)
    return path


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("f (float[b,10] x) => (float[b,10] y) {y = Relu(x)}", "does not take one image"),
        (
            "f (float[1,3,h,w] x, float[1,1,h,w] m) => (float[1,3,h,w] y) {y = Mul(x, m)}",
            "does not take one image",
        ),
        ("f (float[1,4,h,w] x) => (float[1,4,h,w] y) {y = Relu(x)}", "takes 4 channels"),
        ("f (float[1,3,h,w] x) => (float[n] y) {y = Flatten <axis = 1> (x)}", "whole multiple"),
        (
            "f (float[1,1,8,8] x) => (float[1,1,4,4] y) {y = MaxPool <kernel_shape = [5, 5]> (x)}",
            "whole multiple",
        ),
    ],
)
def test_models_that_make_no_image(tmp_path: Path, graph: str, message: str) -> None:
    path = save_graph(tmp_path / "m.onnx", graph)
    write_image(tmp_path / "in.png", ImageData(pixels(8, 8)))
    with pytest.raises(NystraError, match=message) as caught:
        run_images(path, tmp_path / "in.png", tmp_path / "out.png", threads=1)
    assert caught.value.exit_code == 2
    assert not (tmp_path / "out.png").exists()


def test_bad_output_is_not_written(tmp_path: Path) -> None:
    write_image(tmp_path / "in.png", ImageData(pixels(8, 8)))
    bad = save_upscaler(tmp_path / "nan.onnx", metadata=nystra_metadata(), gain=float("nan"))
    with pytest.raises(NystraError, match="values are NaN"):
        run_images(bad, tmp_path / "in.png", tmp_path / "out.png", threads=1)
    assert not (tmp_path / "out.png").exists()
    black = save_upscaler(tmp_path / "black.onnx", metadata=nystra_metadata(), gain=0.0)
    with pytest.raises(NystraError, match="almost no contrast, with a mean of 0 ") as caught:
        run_images(black, tmp_path / "in.png", tmp_path / "out.png", threads=1)
    assert caught.value.exit_code == 1
    (tmp_path / "in").mkdir()
    write_image(tmp_path / "in" / "a.png", ImageData(pixels(8, 8)))
    assert run_images(black, tmp_path / "in", tmp_path / "out", threads=1)[0].exit_code == 1


def test_tiles_of_a_model_that_takes_means_of_the_whole_are_told(tmp_path: Path) -> None:
    write_image(tmp_path / "in.png", ImageData(pixels(40, 40)))
    measured = {"nystra.tile_psnr": "[[64, 31.5], [128, 40.25]]"}
    metadata = nystra_metadata() | {"nystra.tiling": "discouraged"} | measured
    model = save_upscaler(tmp_path / "m.onnx", metadata=metadata)
    whole, tiled = (
        run_images(
            model,
            tmp_path / "in.png",
            tmp_path / "out.png",
            RunOptions(tile=tile, overwrite=True),
            threads=1,
        )[0]
        for tile in (0, 24)
    )
    assert (whole.tiles, whole.warnings) == (1, [])
    assert f"it was run in {tiled.tiles} tiles" in tiled.warnings[0]
    assert (
        "against its whole run: 31.5 dB in tiles of 64, 40.2 dB in tiles of 128"
        in tiled.warnings[0]
    )


@pytest.mark.parametrize(
    ("measured", "told"),
    [
        ({}, "the model needs the whole image: omit `tile`"),
        ({"nystra.tile_psnr": "[[64, 17.0]]"}, "image .*17.0 dB in tiles of 64.*: omit `tile`"),
    ],
)
def test_a_model_that_needs_the_whole_image_refuses_tiles(
    tmp_path: Path, measured: dict[str, str], told: str
) -> None:
    write_image(tmp_path / "in.png", ImageData(pixels(40, 40)))
    metadata = nystra_metadata() | {"nystra.tiling": "internal"} | measured
    model = save_upscaler(tmp_path / "m.onnx", metadata=metadata)
    with pytest.raises(NystraError, match=told):
        run_images(model, tmp_path / "in.png", tmp_path / "out.png", RunOptions(tile=24), threads=1)
    assert not (tmp_path / "out.png").exists()
    run_images(model, tmp_path / "in.png", tmp_path / "out.png", threads=1)


def test_a_fixed_size_does_not_cut_what_has_to_be_whole(tmp_path: Path) -> None:
    metadata = nystra_metadata() | {"nystra.tiling": "internal"}
    path = save_upscaler(tmp_path / "m.onnx", size=(24, 24), metadata=metadata)
    restorer = restorer_for(Session(path, threads=1))
    assert restorer(pixels(20, 24))[1] == 1
    with pytest.raises(NystraError, match=r"takes exactly 24x24 .*needs the whole image.* 20x40"):
        restorer(pixels(20, 40))


def test_bad_input_writes_nothing(tmp_path: Path, model: Path) -> None:
    good = tmp_path / "in.png"
    write_image(good, ImageData(pixels(8, 8)))
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.png").write_bytes(b"nothing")
    (tmp_path / "folder").mkdir()
    write_image(tmp_path / "folder" / "a.png", ImageData(pixels(8, 8)))
    before = sorted(tmp_path.rglob("*"))
    out = tmp_path / "out.png"
    cases = [
        (tmp_path / "absent.png", out, RunOptions(), "there is no image or folder"),
        (tmp_path / "empty", tmp_path / "out", RunOptions(), "holds no images"),
        (tmp_path / "bad.png", out, RunOptions(), "not an image"),
        (good, good, RunOptions(overwrite=True), "is the input itself"),
        (good, tmp_path / "bad.png", RunOptions(), "add `overwrite`"),
        (good, tmp_path / "out.bmp", RunOptions(), "suffix '.bmp'"),
        (good, tmp_path / "bad.png" / "out.png", RunOptions(), "is a file, expected a folder"),
        (tmp_path / "folder", good, RunOptions(), "has to be a folder too"),
        (good, out, RunOptions(tile=4, overlap=4), "leaves less than"),
    ]
    with pytest.raises(NystraError, match="`tile` is -1, expected a whole number of 0 or more"):
        RunOptions(tile=-1)
    for source, target, options, message in cases:
        with pytest.raises(NystraError, match=message) as caught:
            run_images(model, source, target, options, threads=1)
        assert caught.value.exit_code == 2
    with pytest.raises(NystraError, match="`tile` is -1"):
        RunOptions(tile=-1)
    with pytest.raises(NystraError, match="`threads` is 0"):
        run_images(model, good, out, threads=0)
    with pytest.raises(NystraError, match="unknown backend"):
        run_images(model, good, out, backend="gpu")
    if Path("/proc/self").exists():
        with pytest.raises(NystraError, match=r"cannot (create|write)|not writable"):
            run_images(model, good, "/proc/nystra/out.png", threads=1)
    assert sorted(tmp_path.rglob("*")) == before


def test_profile_of_other_colors_is_dropped(tmp_path: Path) -> None:
    """A model that turns gray into color must not keep the gray profile."""
    graph = helper.make_graph(
        [helper.make_node("Concat", ["input"] * 3, ["output"], axis=1)],
        "color",
        [helper.make_tensor_value_info("input", 1, [1, 1, "h", "w"])],
        [helper.make_tensor_value_info("output", 1, [1, 3, "h", "w"])],
    )
    opset = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "m.onnx")
    Image.new("L", (6, 5), 90).save(tmp_path / "in.png", icc_profile=b"gray profile")
    run_images(tmp_path / "m.onnx", tmp_path / "in.png", tmp_path / "out.png", threads=1)
    back = read_image(tmp_path / "out.png")
    assert (back.gray, back.icc) == (False, None)
