"""Tiles by memory: the use of a model is measured, and the estimate is near the peak."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from nystra.core.errors import NystraError
from nystra.runtime import Session
from nystra.runtime.machine.memory import PeakMemory, available_memory
from nystra.runtime.tasks.restoration.restorer import Restorer, restorer_for
from nystra.runtime.tiling.memory_meter import (
    MemoryLaw,
    MemoryMeter,
    automatic_tile,
    fit_law,
    tile_budget,
)
from runtime_models import nystra_metadata, save_upscaler

MIB, GIB = 1 << 20, 1 << 30

# Scores of every pixel with every other, as attention that sees the whole image.
ATTENTION = """
<ir_version: 10, opset_import: ["" : 20]>
f (float[b,3,h,w] input) => (float[b,3,h,w] output) {
  shape = Shape (input)
  flat_shape = Constant <value_ints = [0, 3, -1]> ()
  keys = Reshape (input, flat_shape)
  queries = Transpose <perm = [0, 2, 1]> (keys)
  scores = MatMul (queries, keys)
  weights = Softmax <axis = -1> (scores)
  mixed = MatMul (keys, weights)
  output = Reshape (mixed, shape)
}
"""
# 64 maps of the image's size, a few of them alive at a time.
CONVOLUTION = """
<ir_version: 10, opset_import: ["" : 20]>
f (float[b,3,h,w] input) => (float[b,3,h,w] output) {
  many = Conv <pads = [1, 1, 1, 1]> (input, widen)
  bent = Erf (many)
  output = Conv <pads = [1, 1, 1, 1]> (bent, narrow)
}
"""
PEAK = """
import sys
import numpy as np
from nystra.runtime import Session
from nystra.runtime.tasks.restoration.restorer import restorer_for
from nystra.runtime.machine.memory import PeakMemory, release_free_memory
session, side = Session(sys.argv[1], sys.argv[4], threads=1), int(sys.argv[2])
image = np.full((1, 3, side, side), 0.5, np.float32)
if sys.argv[3] == "peak":
    release_free_memory()
    watch = PeakMemory()
    session(image)
    print(watch.above)
else:
    restorer = restorer_for(session)
    law = restorer.meter.measure(restorer._trial, side * side, 1 << 30)
    print(int(law.constant + law.bytes(side * side)))
"""

needs_marks = pytest.mark.skipif(not PeakMemory().exact, reason="the system keeps no mark to reset")


def save(path: Path, text: str, **weights: np.ndarray) -> Path:
    model = onnx.parser.parse_model(text)
    for name, values in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(model, path)
    return path


@pytest.fixture
def models(tmp_path: Path) -> dict[str, Path]:
    random = np.random.default_rng(0)
    widen = random.random((64, 3, 3, 3), dtype=np.float32) / 27
    narrow = random.random((3, 64, 3, 3), dtype=np.float32) / 576
    return {
        "attention": save(tmp_path / "attention.onnx", ATTENTION),
        "convolution": save(tmp_path / "convolution.onnx", CONVOLUTION, widen=widen, narrow=narrow),
    }


def in_child(path: Path, side: int, what: str, backend: str) -> int:
    command = [sys.executable, "-c", PEAK, str(path), str(side), what, backend]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout)


@needs_marks
@pytest.mark.full
@pytest.mark.parametrize("backend", ["ort-cpu", "openvino"])
@pytest.mark.parametrize(("name", "sides"), [("convolution", (512, 768)), ("attention", (80, 104))])
def test_the_estimate_is_near_the_peak(
    models: dict[str, Path], name: str, sides: tuple[int, int], backend: str
) -> None:
    if backend == "openvino":
        pytest.importorskip("openvino", reason="nystra[openvino] is not installed")
    for side in sides:
        peak, estimate = (
            in_child(models[name], side, what, backend) for what in ("peak", "estimate")
        )
        assert peak / 1.5 < estimate < peak * 1.5, (side, peak, estimate)


@needs_marks
def test_a_foreign_file_is_measured_before_it_runs(models: dict[str, Path]) -> None:
    """Attention on 120x120 pixels takes 1.7 GB; the default assumed 0.6."""
    restorer = restorer_for(Session(models["attention"], threads=1))
    image = np.full((120, 120, 3), 0.5, np.float32)
    limit = (PeakMemory().before or 0) + 200 * MIB
    watch = PeakMemory()
    output, tiles = restorer(image, max_memory=limit)
    np.testing.assert_allclose(output, 0.5, atol=1e-4)
    assert tiles > 1
    assert watch.peak is not None
    assert watch.peak < limit
    restorer(image, tile=24, max_memory=limit)
    with pytest.raises(NystraError, match=r"needs about .* MiB for a tile of 120x120"):
        restorer(image, tile=120, max_memory=limit)
    with pytest.raises(NystraError, match="with the model loaded, and the limit is 1 MiB"):
        restorer(image, max_memory=MIB)


@pytest.mark.full
@needs_marks
def test_a_model_is_measured_once_and_only_where_it_matters(tmp_path: Path) -> None:
    sizes: list[int] = []

    def run(image: np.ndarray) -> np.ndarray:
        sizes.append(image.shape[2])
        np.ones(800 * image.shape[2] * image.shape[3], np.uint8)
        return image

    restorer = Restorer(run, meter=MemoryMeter())
    restorer(np.zeros((20, 20, 3), np.float32))
    assert sizes == [20]
    sizes.clear()
    for _ in range(2):
        restorer(np.zeros((2000, 1000, 3), np.float32))
    assert sizes[:3] == [32, 48, 64]
    assert sizes.count(32) == 1
    assert len(set(sizes[-4:])) == 1  # tiles of one shape, in both runs


@pytest.mark.full
@needs_marks
def test_tiles_of_the_present_size_cover_an_image_evenly() -> None:
    """With a memory limit, overlaps computed an image more than twice."""
    pixels = []

    def run(image: np.ndarray) -> np.ndarray:
        np.ones(2000 * image.shape[2] * image.shape[3], np.uint8)
        pixels.append(image.shape[2] * image.shape[3])
        return image

    limit = (PeakMemory().before or 0) + 400 * MIB
    restorer = Restorer(run, meter=MemoryMeter(linear_only=True), size_multiple=8)
    for height in (512, 600, 700, 800):
        pixels.clear()
        output, tiles = restorer(np.zeros((height, 900, 3), np.float32), max_memory=limit)
        assert output.shape == (height, 900, 3)
        assert tiles > 1
        assert sum(pixels[-tiles:]) < 1.35 * height * 900


@pytest.mark.parametrize("square", [0.0, 0.4, 11.0])
@pytest.mark.parametrize("linear", [300.0, 12_000.0])
def test_the_law_is_found_again(linear: float, square: float) -> None:
    random = np.random.default_rng(1)
    points = []
    for side in (32, 48, 64, 96, 128, 192):
        pixels = side * side
        noise = random.uniform(-0.1, 0.1) * MIB
        points.append((pixels, int(6 * MIB + linear * pixels + square * pixels**2 + noise)))
    law = fit_law(points)
    for pixels in (100_000, 400_000):
        true = linear * pixels + square * pixels**2
        assert true / 1.5 < law.bytes(pixels) + law.constant < 1.5 * (true + 6 * MIB)
    assert (law.square > 0) == (square > 0)
    known = fit_law(points, linear_only=True)
    assert known.square == 0
    assert fit_law(points, known_square=1e-6).square in (1e-6, law.square)


@pytest.mark.parametrize("odd", range(1, 5))
def test_one_run_that_reused_memory_makes_no_quadratic_part(odd: int) -> None:
    points = [(side * side, 544 * side * side) for side in (48, 64, 96, 128, 192, 256)]
    points[odd] = (points[odd][0], points[odd][1] * 7 // 10)
    assert fit_law(points).square == 0
    square = [(pixels, taken + pixels**2) for pixels, taken in points]
    assert fit_law(square).square == pytest.approx(1.0, rel=0.05)


def test_of_a_single_measurement_the_worst_is_assumed() -> None:
    assert fit_law([(1000, 5_000_000)]) == MemoryLaw(0.0, 5.0, 0.0, 4000)
    assert fit_law([(1000, 5_000_000)], linear_only=True) == MemoryLaw(5000.0)


def test_parallel_limit() -> None:
    assert MemoryLaw(100.0).max_pixels(20_000_000) == 200_000
    assert MemoryLaw(100.0, reach=1000).max_pixels(20_000_000) == 1000
    for linear, square in ((100.0, 20.0), (0.0, 5.0), (1e4, 1e-3)):
        law = MemoryLaw(linear, square)
        most = law.max_pixels(10**9)
        assert law.bytes(most) <= 10**9 < law.bytes(most + 1)


def test_automatic_tile() -> None:
    law = MemoryLaw(40_960.0)
    assert automatic_tile((100, 100), law, 2 * GIB) is None
    side = automatic_tile((4000, 4000), law, 3 * GIB, multiple=32, overlap=32)
    assert side == 256  # 280 without the multiple
    assert automatic_tile((4000, 4000), MemoryLaw(100.0, 20.0), 10 * MIB) == 26
    assert automatic_tile((4000, 4000), MemoryLaw(0.0, 1.0), 900 * GIB) == 215  # 2 GiB are enough
    assert automatic_tile((1000, 1000), law, 150 * MIB, multiple=32, overlap=32) == 64
    with pytest.raises(NystraError, match=r"needs about 160 MiB for a tile of 64x64, and 40 MiB"):
        automatic_tile((1000, 1000), law, 20 * MIB, multiple=32, overlap=32)
    assert tile_budget((1000, 1000), 10, GIB) == (GIB - 40_000_000) // 2
    with pytest.raises(NystraError, match="4000x4000 needs"):
        tile_budget((4000, 4000), 99, GIB)
    assert available_memory() > 1 << 20


def test_what_a_file_says_of_its_memory(tmp_path: Path) -> None:
    for text, meter in (("20.0", (20.0, False)), ("0", (0.0, True))):
        entries = nystra_metadata(**{"nystra.quadratic_bytes": text})
        path = save_upscaler(tmp_path / "m.onnx", metadata=entries)
        restorer = restorer_for(Session(path, threads=1))
        assert restorer.meter is not None
        assert (restorer.meter.known_square, restorer.meter.linear_only) == meter
        output, tiles = restorer(np.zeros((40, 60, 3), np.float32))
        assert (output.shape, tiles) == ((80, 120, 3), 1)
    bad = save_upscaler(
        tmp_path / "bad.onnx", metadata=nystra_metadata(**{"nystra.quadratic_bytes": "-1"})
    )
    with pytest.raises(NystraError, match=r"nystra\.quadratic_bytes is '-1', expected a number"):
        Session(bad)
