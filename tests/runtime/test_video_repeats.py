"""Videos with repeated frames: no tile is computed twice, and the result is the same."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nystra.core.ports.port import Port
from nystra.runtime import write_image
from nystra.runtime.images.image_data import ImageData
from nystra.runtime.tasks.restoration.auxiliary_roles import AuxiliaryInputs
from nystra.runtime.tasks.restoration.restorer import RestoredImage, Restorer
from nystra.runtime.tasks.video.frame_restorer import restore_singly
from nystra.runtime.tiling.run_tiled import RepeatedTiles
from nystra.runtime.video.frame_folder import FrameFolder

TILING = {"tile": 16, "overlap": 4}
TILES = 3 * 3
"""Of 32x40 pixels."""


def save(folder: Path, frames: list[np.ndarray]) -> FrameFolder:
    folder.mkdir()
    for index, pixels in enumerate(frames):
        write_image(folder / f"f{index + 1}.png", ImageData(pixels), overwrite=False)
    return FrameFolder(folder)


@pytest.fixture
def frames() -> list[np.ndarray]:
    """Three equal frames, one with another pixel at the top left, and that one again."""
    still = np.random.default_rng(0).integers(0, 256, (32, 40, 3)).astype(np.float32) / 255
    changed = still.copy()
    changed[0, 0, 0] = 1 - changed[0, 0, 0]
    return [still, still, still, changed, changed]


class Counting:
    """Doubles an image in each direction, and depends on the sum over a tile."""

    def __init__(self) -> None:
        self.tiles = 0

    def __call__(self, image: np.ndarray, **others: np.ndarray) -> np.ndarray:
        self.tiles += len(image)
        large = image.repeat(2, 2).repeat(2, 3)
        return large + image.mean((1, 2, 3), keepdims=True)


def restored(network: Restorer, source: FrameFolder, **files: Path) -> list[RestoredImage]:
    auxiliary = AuxiliaryInputs.match(network.auxiliary, files)
    return list(restore_singly(network, {} if files else TILING, auxiliary, source))


def one_by_one(network: Restorer, frames: list[np.ndarray]) -> Iterator[np.ndarray]:
    return (network(frame, **TILING)[0] for frame in frames)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_a_tile_is_computed_once_and_gives_the_same(
    tmp_path: Path, frames: list[np.ndarray], channels: int, batch: int
) -> None:
    """A network of one channel gets the channels one by one, in tiles."""
    source = save(tmp_path / "in", frames)
    function = Counting()
    network = Restorer(function, 2, input_channels=channels, output_channels=channels, batch=batch)
    results = restored(network, source)
    whole, changed = TILES * 3 // channels, batch
    assert function.tiles == whole + changed
    assert [result.tiles for result in results] == [whole] * 5
    for result, alone in zip(results, one_by_one(network, frames), strict=True):
        assert np.array_equal(result.image.pixels, alone)


def test_a_pixel_of_the_overlap_counts(tmp_path: Path, frames: list[np.ndarray]) -> None:
    """Rows and columns 12 to 15 are in four tiles."""
    inner = frames[0].copy()
    inner[14, 14, 1] = 1 - inner[14, 14, 1]
    function = Counting()
    restored(Restorer(function, 2), save(tmp_path / "in", [frames[0], inner]))
    assert function.tiles == TILES + 4


def test_a_frame_is_compared_with_the_one_before_it_alone(
    tmp_path: Path, frames: list[np.ndarray]
) -> None:
    function = Counting()
    a, b = frames[0], 1 - frames[0]
    restored(Restorer(function, 2), save(tmp_path / "in", [a, b, a]))
    assert function.tiles == 3 * TILES


def test_masks_of_the_frames_may_differ(tmp_path: Path, frames: list[np.ndarray]) -> None:
    function = Counting()
    mask = Port("mask", "mask", lengths={"channels": 1})
    masks = tmp_path / "masks"
    save(masks, [np.full((32, 40, 1), value, np.float32) for value in (0, 1)])
    network = Restorer(function, 2, auxiliary=(mask,))
    source = save(tmp_path / "in", frames[:2])
    restored(network, source, mask=masks)
    assert function.tiles == 2


def test_what_is_beyond_the_memory_is_computed_again() -> None:
    tiles = [np.full((1, 3, 8, 8), value, np.float32) for value in range(4)]
    one = tiles[0].nbytes * (1 + 4)  # it, and what is made of it
    function = Counting()
    network = Restorer(function)
    repeats = RepeatedTiles(2 * one)
    for _ in range(3):
        repeats.begin_frame()
        assert len(list(repeats(network.function, [[tile] for tile in tiles]))) == 4
    assert function.tiles == 4 + 2 + 2
    assert repeats.reused == 4


def test_what_is_kept_cannot_be_changed() -> None:
    repeats = RepeatedTiles(1 << 20)
    (outputs,) = repeats(lambda tile: tile + 1, [[np.zeros((1, 1, 2, 2), np.float32)]])
    with pytest.raises(ValueError, match="read-only"):
        outputs[0] += 1
