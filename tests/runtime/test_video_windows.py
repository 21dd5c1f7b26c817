"""Networks on frames: split in time and space, blended, in order, in bounded memory."""

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nystra.cli.main import main
from nystra.core.errors import NystraError
from nystra.core.ports.port import FRAMES_AXES, Port
from nystra.runtime import Session, VideoOptions, read_image
from nystra.runtime.images.image_data import ImageData, quantize
from nystra.runtime.model.model_facts import ModelFacts
from nystra.runtime.tasks.restoration.options import RunOptions
from nystra.runtime.tasks.video.clip_restorer import clip_restorer_for
from nystra.runtime.tasks.video.run import restore_frames
from nystra.runtime.tiling.time_windows import plan_windows
from nystra.runtime.video.frame_folder import FrameFolder, frame_order
from video_files import save_frames, save_temporal_mean, scene, temporal_mean


def expected(count: int, size: tuple[int, int] = (24, 32)) -> np.ndarray:
    frames = [scene(index, *size).astype(np.float32) / 255 for index in range(count)]
    return np.stack([quantize(frame, 8) for frame in temporal_mean(frames)])


def written(folder: Path, count: int) -> np.ndarray:
    pixels = [read_image(folder / f"f{index + 1}.png").pixels for index in range(count)]
    return np.stack([quantize(frame, 8) for frame in pixels])


@pytest.mark.full
@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 13, 21])
def test_a_cut_video_is_the_uncut_one(tmp_path: Path, count: int) -> None:
    """The network sees a quarter of 4 frames, so no split is visible."""
    model = save_temporal_mean(tmp_path / "mean.onnx", 8)
    folder = save_frames(tmp_path / "in", count)
    given = ["run", str(model), "-i", str(folder), "-o", str(tmp_path / "out"), "-q"]
    assert main([*given, "--threads", "1", "--time-overlap", "4"]) == 0
    want, got = expected(count), written(tmp_path / "out", count)
    if 1 < count < 8:  # the video goes on mirrored: its last frame has another neighbor
        want, got = want[:-1], got[:-1]
    np.testing.assert_allclose(got.astype(int), want.astype(int), atol=1)


def test_frames_at_the_cut_depart_where_the_network_sees_beyond_the_overlap(tmp_path: Path) -> None:
    model = save_temporal_mean(tmp_path / "mean.onnx", 8)
    folder = save_frames(tmp_path / "in", 16)
    given = ["run", str(model), "-i", str(folder), "-o", str(tmp_path / "out"), "-q"]
    assert main([*given, "--threads", "1", "--time-overlap", "0"]) == 0
    worst = np.abs(written(tmp_path / "out", 16).astype(int) - expected(16)).max((1, 2, 3))
    assert set(np.flatnonzero(worst > 1)) == {7, 8}


def test_tiles_and_a_clip_of_any_length(tmp_path: Path) -> None:
    model = save_temporal_mean(tmp_path / "mean.onnx", "frames")
    folder = save_frames(tmp_path / "in", 12, (30, 40))
    given = ["run", str(model), "-i", str(folder), "-o", str(tmp_path / "out"), "-q"]
    assert main([*given, "--threads", "1", "-t", "16", "--overlap", "4"]) == 0
    difference = np.abs(written(tmp_path / "out", 12).astype(int) - expected(12, (30, 40)))
    assert difference.max((1, 2, 3)).tolist().count(0) >= 8
    assert difference[2:7].max() <= 1


@pytest.mark.parametrize("length", [1, 2, 4, 5, 8])
def test_weights_add_up_to_one(length: int) -> None:
    for count in range(1, 30):
        for overlap in (None, *range(length)):
            total = np.zeros(count)
            windows = plan_windows(count, length, overlap)
            for window in windows:
                assert len(window.indices) == len(window.weights) == length
                for index, weight in list(zip(window.indices, window.weights, strict=True))[:count]:
                    total[index] += weight
            np.testing.assert_allclose(total, 1, atol=1e-6)
            assert [window.start for window in windows] == sorted(
                {window.start for window in windows}
            )


def test_a_short_video_is_mirrored_and_a_wrong_overlap_refused() -> None:
    assert plan_windows(3, 8)[0].indices == (0, 1, 2, 1, 0, 1, 2, 1)
    assert plan_windows(1, 4)[0].indices == (0, 0, 0, 0)
    with pytest.raises(NystraError, match="an overlap of 8 frames leaves no new frames"):
        plan_windows(20, 8, 8)


class Counted(FrameFolder):
    """A folder that counts its images in memory."""

    alive = most = 0

    def frames(self) -> Iterator[tuple[Path, ImageData]]:
        for name, image in super().frames():
            self.alive += 1
            self.most = max(self.most, self.alive)
            weakref.finalize(image, self.dead)
            yield name, image
            del image

    def dead(self) -> None:
        self.alive -= 1


def test_memory_is_bounded(tmp_path: Path) -> None:
    session = Session(save_temporal_mean(tmp_path / "mean.onnx", 4), threads=1)
    source = Counted(save_frames(tmp_path / "in", 40, (8, 8)))
    scale, frames = restore_frames(session, source, RunOptions(), VideoOptions())
    tiles = []
    for restored in frames:
        gc.collect(0)
        tiles.append(restored.tiles)
    assert scale == 2
    assert source.most <= 8
    assert sum(tiles) == 19  # windows that begin at 0, 2, ... 36
    assert len(tiles) == 40


def test_a_network_that_is_told_the_noise() -> None:
    port = Port("frames", "frames", FRAMES_AXES, {"frames": 2, "channels": 4})
    made = Port("output", "frames", FRAMES_AXES, {"frames": 2, "channels": 3})
    facts = ModelFacts(task="video", scale=1, inputs=(port,), outputs=(made,))

    def run(feeds: dict[str, np.ndarray], release: bool = False) -> dict[str, np.ndarray]:
        clip = feeds["frames"]
        return {"output": clip[:, :, :3] + clip[:, :, 3:]}

    kind = SimpleNamespace(measures_memory=False)
    session: Any = SimpleNamespace(facts=facts, run=run, path="noisy.onnx", kind=kind)
    gray, color = np.full((8, 8, 1), 0.5, np.float32), np.full((8, 8, 3), 0.25, np.float32)
    for frame in (gray, color):
        pair, _ = clip_restorer_for(session, 51.0)([frame, frame])
        assert len(pair) == 2
        np.testing.assert_allclose(pair[1], frame + np.float32(0.2), atol=1e-6)
    with pytest.raises(NystraError, match="as a fourth channel: give `noise`"):
        clip_restorer_for(session)
    told = SimpleNamespace(facts=replace(facts, inputs=(made,)), path="m.onnx")
    with pytest.raises(NystraError, match=r"`noise` does not apply to m\.onnx"):
        clip_restorer_for(told, 25.0)  # type: ignore[arg-type]


def test_numbers_in_names_are_numbers() -> None:
    names = ["f10.png", "f2.png", "f1.png", "Frame 003.png", "2.png", "10.png", "1a.png"]
    expected = ["1a.png", "2.png", "10.png", "Frame 003.png", "f1.png", "f2.png", "f10.png"]
    assert sorted(names, key=frame_order) == expected
