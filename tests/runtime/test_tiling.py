"""Tiles: equal to the untiled output if the network cannot see a seam, otherwise blended."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from golden_cases import golden
from nystra.core.errors import NystraError
from nystra.runtime import Session
from nystra.runtime.tasks.restoration.quality import official_pad
from nystra.runtime.tiling.run_tiled import run_batch, run_tiled
from nystra.runtime.tiling.tile_plan import (
    Stitcher,
    even_tile,
    mirror_to,
    plan_tiles,
    tile_positions,
)
from runtime_models import save_blur
from swinir_procedure import official_procedure


def double(image: np.ndarray) -> np.ndarray:
    return np.repeat(np.repeat(image, 2, axis=2), 2, axis=3)


def make_image(height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(height).random((1, channels, height, width), dtype=np.float32)


@pytest.mark.parametrize("size", [(1, 1), (5, 70), (64, 64), (65, 31), (100, 130)])
@pytest.mark.parametrize(
    ("tile", "overlap", "multiple"), [(32, 8, 8), (32, 24, 8), (40, 0, 8), (33, 9, 1)]
)
def test_pointwise_network_is_exact(
    size: tuple[int, int], tile: int, overlap: int, multiple: int
) -> None:
    image = make_image(*size)
    output = run_tiled(double, image, tile, overlap, 2, multiple)
    assert output.dtype == np.float32
    np.testing.assert_allclose(output, double(image), atol=2e-7)


def test_identical_away_from_seams(tmp_path: Path) -> None:
    radius, overlap, tile = 3, 16, 48
    session = Session(save_blur(tmp_path / "m.onnx", radius), threads=1)
    image = make_image(100, 130, 1)
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
    image = make_image(40, 200, 1)
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
    run_tiled(record, make_image(100, 130), 37, 9, 2, 8, lambda *pair: calls.append(pair))
    assert set(shapes) == {(1, 3, 32, 32)}
    assert calls == [(i + 1, len(shapes)) for i in range(len(shapes))]
    assert all(start % 8 == 0 for start, _ in tile_positions(136, 37, 9, 8))


def test_constant_stays_constant() -> None:
    image = np.full((1, 1, 90, 90), 0.7, np.float32)
    np.testing.assert_allclose(run_tiled(double, image, 32, 13, 2), 0.7, atol=1e-6)


def test_fixed_size_pads_small_images() -> None:
    def fixed(part: np.ndarray) -> np.ndarray:
        assert part.shape == (1, 3, 16, 24)
        return double(part)

    for size in [(1, 1), (5, 100), (16, 24), (40, 30)]:
        image = make_image(*size)
        output = run_tiled(fixed, image, (16, 24), 4, 2, fixed=True)
        np.testing.assert_allclose(output, double(image), atol=2e-7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tile": 16, "overlap": 16}, "leaves less than"),
        ({"tile": 7, "overlap": 0, "multiple": 8}, "expected at least 8"),
        ({"tile": 16, "overlap": -1}, "`overlap` is -1"),
        ({"tile": None, "overlap": -3}, "`overlap` is -3"),
        ({"tile": 16, "overlap": 0, "batch": 0}, "batch is 0"),
        ({"tile": 16, "overlap": 0, "blend": "cubic"}, "blend"),
        ({"tile": 16, "overlap": 0, "scale": 3}, "for the scale 3"),
    ],
)
def test_contradictions(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(NystraError, match=message):
        run_tiled(double, make_image(50, 50), **{"scale": 2, **arguments})  # type: ignore[arg-type]


def test_mirror_is_numpys_reflect() -> None:
    image = make_image(5, 7)
    expected = np.pad(image, ((0, 0), (0, 0), (0, 12), (0, 3)), mode="reflect")
    np.testing.assert_array_equal(mirror_to(image, 17, 10), expected)
    np.testing.assert_array_equal(
        mirror_to(make_image(1, 1), 3, 3), np.broadcast_to(make_image(1, 1), (1, 3, 3, 3))
    )


@pytest.mark.parametrize("size", [(1, 3), (8, 8), (30, 37)])
def test_official_pad(size: tuple[int, int]) -> None:
    image = make_image(*size)
    padded = official_pad(image, 8)
    height, width = ((side // 8 + 1) * 8 for side in size)
    add = ((0, 0), (0, 0), (0, height - size[0]), (0, width - size[1]))
    np.testing.assert_array_equal(padded, np.pad(image, add, mode="symmetric"))


def test_official_tiles_follow_the_golden_notes() -> None:
    case = golden("swinir_evaluation_procedure")
    for run, inputs, kwargs, _ in case.runs():
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


def test_tiles_of_two_images_in_one_batch() -> None:
    """A server plans and stitches itself, and batches any tiles."""
    images = [make_image(50, 70), make_image(41, 33)]
    plans = [plan_tiles(image.shape[2:], 24, 8, 8) for image in images]
    stitchers = [Stitcher(plan, 2) for plan in plans]
    waiting = [(which, index) for which, plan in enumerate(plans) for index in range(len(plan))]
    assert {plan.shape for plan in plans} == {(24, 24)}
    for first in range(0, len(waiting), 5):  # 5 divides neither image's tiles
        batch = waiting[first : first + 5]
        made = double(np.concatenate([plans[w].cut(images[w], index) for w, index in batch]))
        for (which, index), tile in zip(batch, made, strict=True):
            stitchers[which].add(index, tile)
    for stitcher, image in zip(stitchers, images, strict=True):
        np.testing.assert_array_equal(stitcher.image(), run_tiled(double, image, 24, 8, 2, 8))


def test_tiles_in_any_order_give_the_same_image() -> None:
    image = make_image(50, 70)
    plan = plan_tiles((50, 70), 24, 8, 8)
    stitcher = Stitcher(plan, 2)
    for index in reversed(range(len(plan))):
        stitcher.add(index, double(plan.cut(image, index)))
    np.testing.assert_allclose(stitcher.image(), double(image), atol=2e-7)


def test_what_cannot_be_stitched() -> None:
    plan = plan_tiles((50, 70), 24, 8, 8)
    stitcher = Stitcher(plan, 2)
    tile = np.zeros((3, 48, 48), np.float32)
    stitcher.add(0, tile)
    missing = f"{len(plan) - 1} of {len(plan)} tiles are missing"
    for index, values, message in (
        (0, tile, "was added already"),
        (len(plan), tile, "is unknown"),
        (1, tile[:, :40], r"expected \(1, C, \*\(48, 48\)\) for the scale 2"),
        (1, tile[:1], "1 channels for a tile and 3 before"),
    ):
        with pytest.raises(NystraError, match=message):
            stitcher.add(index, values)
    with pytest.raises(NystraError, match=missing):
        stitcher.image()
    with pytest.raises(NystraError, match="got an image of shape"):
        plan.cut(make_image(51, 70), 0)


@pytest.mark.parametrize("batch", [2, 5, 100])
def test_batches_change_nothing(batch: int) -> None:
    sizes: list[int] = []
    calls: list[tuple[int, int]] = []

    def record(part: np.ndarray) -> np.ndarray:
        sizes.append(part.shape[0])
        return double(part)

    image = make_image(100, 130)
    expected = run_tiled(double, image, 32, 9, 2, 8)
    got = run_tiled(record, image, 32, 9, 2, 8, lambda *pair: calls.append(pair), batch=batch)
    np.testing.assert_array_equal(got, expected)
    total = sum(sizes)
    assert max(sizes) == min(batch, total)
    assert calls[-1] == (total, total)


def test_a_batch_that_fails_is_run_tile_by_tile() -> None:
    sizes = []

    def one_at_a_time(part: np.ndarray) -> np.ndarray:
        sizes.append(part.shape[0])
        if part.shape[0] > 1:
            raise MemoryError
        return double(part)

    image = make_image(40, 40)
    np.testing.assert_allclose(
        run_tiled(one_at_a_time, image, 32, 8, 2, 8, batch=3), double(image), atol=2e-7
    )
    assert sizes == [3, 1, 1, 1, 1]
    with pytest.raises(NystraError, match="for a batch of 2 tiles"):
        run_batch(lambda part: part[:1], [image, image])


def test_an_even_tile_does_no_work_twice() -> None:
    """2000 pixels in tiles of 1000 needed 3x3 tiles."""
    assert even_tile((2000, 2000), 1000, 32, 8) == (688, 688)
    assert even_tile((3000, 4000), 800, 32, 8) == (776, 696)
    assert even_tile((100, 40), 128, 32, 8) == (104, 40)
    random = np.random.default_rng(0)
    for _ in range(400):
        multiple = int(random.choice([1, 2, 8, 32]))
        overlap = int(random.choice([0, 8, 32]))
        side = overlap + multiple * int(random.integers(1, 40))
        size = (int(random.integers(1, 3000)), int(random.integers(1, 3000)))
        side = side // multiple * multiple if side // multiple else multiple
        if (side - overlap) // multiple < 1:
            continue
        tile = even_tile(size, side, overlap, multiple, min(side, 16))
        square, even = (plan_tiles(size, t, overlap, multiple) for t in (side, tile))
        assert len(even) <= len(square)
        assert max(tile) <= side
        assert all(length % multiple == 0 for length in tile)
        assert even.shape[0] * even.shape[1] <= square.shape[0] * square.shape[1]
