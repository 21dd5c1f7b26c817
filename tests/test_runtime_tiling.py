"""Tiles: the same as untiled where the network cannot see a seam, and blended where it can."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nystra.plugins.errors import NystraError
from nystra.runtime import Session
from nystra.runtime.checking.official_procedure import official_pad, official_procedure
from nystra.runtime.restoring.tile_memory import automatic_tile, available_memory
from nystra.runtime.restoring.tiling import mirror_to, run_tiled, tile_positions
from runtime_models import save_blur
from shared import golden


def double(image: np.ndarray) -> np.ndarray:
    return np.repeat(np.repeat(image, 2, axis=2), 2, axis=3)


def picture(height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(height).random((1, channels, height, width), dtype=np.float32)


@pytest.mark.parametrize("size", [(1, 1), (5, 70), (64, 64), (65, 31), (100, 130)])
@pytest.mark.parametrize(("tile", "overlap", "multiple"), [(32, 8, 8), (40, 0, 8), (33, 9, 1)])
def test_pointwise_network_is_exact(
    size: tuple[int, int], tile: int, overlap: int, multiple: int
) -> None:
    image = picture(*size)
    output = run_tiled(double, image, tile, overlap, 2, multiple)
    assert output.dtype == np.float32
    np.testing.assert_allclose(output, double(image), atol=2e-7)


def test_identical_away_from_seams(tmp_path: Path) -> None:
    radius, overlap, tile = 3, 16, 48
    session = Session(save_blur(tmp_path / "m.onnx", radius), threads=1)
    image = picture(100, 130, 1)
    whole = session(image)
    tiled = run_tiled(session, image, tile, overlap)
    core = np.ones((100, 130), bool)
    for axis, size in enumerate((100, 130)):
        spans = tile_positions(size, tile, overlap)
        for (_, end), (start, _) in pairwise(spans):
            band = [slice(None)] * 2
            band[axis] = slice(start, end)
            core[tuple(band)] = False
    assert core.sum() > 1000
    difference = np.abs(tiled - whole)[0, 0]
    assert difference[core].max() < 1e-6
    assert difference.max() < 0.25  # at a seam zero padding shows, weighted down


def test_seams_are_weighted_down(tmp_path: Path) -> None:
    session = Session(save_blur(tmp_path / "m.onnx", 3), threads=1)
    image = picture(40, 200, 1)
    whole = session(image)
    errors = [
        float(np.abs(run_tiled(session, image, 64, overlap) - whole).max()) for overlap in (0, 24)
    ]
    assert errors[1] < 0.2 * errors[0]


def test_tiles_have_one_shape_and_start_at_multiples() -> None:
    shapes = []

    def record(part: np.ndarray) -> np.ndarray:
        shapes.append(part.shape)
        return double(part)

    calls: list[tuple[int, int]] = []
    run_tiled(record, picture(100, 130), 37, 9, 2, 8, lambda *pair: calls.append(pair))
    assert set(shapes) == {(1, 3, 32, 32)}
    assert calls == [(i + 1, len(shapes)) for i in range(len(shapes))]
    assert all(start % 8 == 0 for start, _ in tile_positions(136, 37, 9, 8))


def test_constant_stays_constant() -> None:
    image = np.full((1, 1, 90, 90), 0.7, np.float32)
    np.testing.assert_allclose(run_tiled(double, image, 32, 13, 2), 0.7, atol=1e-6)


def test_fixed_size_pads_small_pictures() -> None:
    def fixed(part: np.ndarray) -> np.ndarray:
        assert part.shape == (1, 3, 16, 24)
        return double(part)

    for size in [(1, 1), (5, 100), (16, 24), (40, 30)]:
        image = picture(*size)
        output = run_tiled(fixed, image, (16, 24), 4, 2, fixed=True)
        np.testing.assert_allclose(output, double(image), atol=2e-7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tile": 16, "overlap": 16}, "leaves no step"),
        ({"tile": 7, "overlap": 0, "multiple": 8}, "expected at least 8"),
        ({"tile": 16, "overlap": -1}, "overlap is -1"),
        ({"tile": 16, "overlap": 0, "blend": "cubic"}, "blend"),
        ({"tile": 16, "overlap": 0, "scale": 3}, "for the scale 3"),
    ],
)
def test_contradictions(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(NystraError, match=message):
        run_tiled(double, picture(50, 50), **{"scale": 2, **arguments})  # type: ignore[arg-type]


def test_mirror_is_numpys_reflect() -> None:
    image = picture(5, 7)
    expected = np.pad(image, ((0, 0), (0, 0), (0, 12), (0, 3)), mode="reflect")
    np.testing.assert_array_equal(mirror_to(image, 17, 10), expected)
    np.testing.assert_array_equal(
        mirror_to(picture(1, 1), 3, 3), np.broadcast_to(picture(1, 1), (1, 3, 3, 3))
    )


@pytest.mark.parametrize("size", [(1, 3), (8, 8), (30, 37)])
def test_official_pad(size: tuple[int, int]) -> None:
    image = picture(*size)
    padded = official_pad(image, 8)
    height, width = ((side // 8 + 1) * 8 for side in size)
    add = ((0, 0), (0, 0), (0, height - size[0]), (0, width - size[1]))
    np.testing.assert_array_equal(padded, np.pad(image, add, mode="symmetric"))


def test_official_tiles_follow_the_golden_notes() -> None:
    case = golden("swinir_evaluation_procedure")
    for run, inputs, kwargs, _, _ in case.runs():
        image = inputs["x"]
        seen = np.zeros((1, 1, *((side // 8 + 1) * 8 for side in image.shape[2:])))
        shapes = set()

        def count(part: np.ndarray, shapes: set[tuple[int, ...]] = shapes) -> np.ndarray:
            shapes.add(part.shape[2:])
            return double(part)

        output = official_procedure(count, image, 8, 2, kwargs["tile"], kwargs["tile_overlap"])
        assert list(output.shape) == run["outputs"][0]["shape"]
        np.testing.assert_allclose(output, double(image), atol=1e-5)
        tile = kwargs["tile"]
        assert shapes == {seen.shape[2:] if tile is None else (tile, tile)}


def test_equal_weights_average() -> None:
    image = np.zeros((1, 1, 16, 24), np.float32)
    values = iter([0.0, 1.0])
    output = run_tiled(lambda part: np.full_like(part, next(values)), image, 16, 8, blend="equal")
    np.testing.assert_array_equal(output[0, 0, 0], [0.0] * 8 + [0.5] * 8 + [1.0] * 8)


def test_automatic_tile() -> None:
    gib = 1 << 30
    assert automatic_tile(100, 100, 3, 2, 4 * gib) is None
    side = automatic_tile(4000, 4000, 3, 2, 8 * gib, multiple=32, overlap=32)
    assert side is not None
    assert side % 32 == 0
    assert 200 < side < 400
    assert automatic_tile(1000, 1000, 3, 2, gib // 8, multiple=32, overlap=32) == 64
    larger = automatic_tile(4000, 4000, 3, 2, 64 * gib, multiple=32)
    assert larger is not None
    assert larger > side
    with pytest.raises(NystraError, match="4000x4000 needs"):
        automatic_tile(4000, 4000, 3, 4, gib)
    assert available_memory() > 1 << 20
