"""Trainings that blur, move and start from another scale."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from image_files import rgb
from nystra.core.errors import CheckpointError, NystraError
from nystra.models import load
from shared import shared_path
from studies.training.__main__ import write_weights
from studies.training.data import Pair, read_pairs
from studies.training.deblurring import Deblurring, motion_kernel, with_motion
from studies.training.enlarging import Enlarging
from studies.training.enlarging_by_csnln import EnlargingByCsnln
from studies.training.enlarging_videos import EnlargingVideos, moving, reduced
from studies.training.loop import train

TINY = Enlarging(steps=1, batch=1, patch=8, window=4, width=8, depths=(2,), heads=2)
VIDEO = EnlargingVideos(steps=1, patch=8, frames=4, window=4, width=8)


def photograph(seed: int, height: int = 160, width: int = 128) -> np.ndarray:
    coarse = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3))
    return coarse.astype(np.uint8).repeat(8, 0).repeat(8, 1)


def pairs(tmp_path: Path, scale: int) -> list[Pair]:
    Image.fromarray(photograph(0)).save(tmp_path / "0.png")
    return read_pairs(tmp_path, scale, 8)


@pytest.mark.parametrize("scale", [4, 6])
def test_a_larger_scale_starts_from_a_smaller_one(tmp_path: Path, scale: int) -> None:
    """Each pixel of the x2 output becomes a square; a step at rate 0 changes nothing."""
    start = TINY.network()
    write_weights(tmp_path / "x2.safetensors", start.state_dict(), TINY, [])
    recipe = dataclasses.replace(
        TINY, scale=scale, start=str(tmp_path / "x2.safetensors"), rate=1e-30
    )
    network = recipe.network().eval()
    network.load_state_dict(train(recipe, pairs(tmp_path, scale), tmp_path / "state.pt"))
    small = torch.rand(1, 3, 12, 16)
    with torch.no_grad():
        expected = start.eval()(small)
        expected = expected.repeat_interleave(scale // 2, 2).repeat_interleave(scale // 2, 3)
        torch.testing.assert_close(network(small), expected, atol=1e-5, rtol=0)


def test_a_scale_that_does_not_divide_is_refused(tmp_path: Path) -> None:
    write_weights(tmp_path / "x2.safetensors", TINY.network().state_dict(), TINY, [])
    recipe = dataclasses.replace(TINY, scale=3, start=str(tmp_path / "x2.safetensors"))
    with pytest.raises(CheckpointError, match="holds the weights of another network"):
        train(recipe, pairs(tmp_path, 3), tmp_path / "state.pt")


def test_a_straight_path_is_a_line() -> None:
    line = motion_kernel(9, 0, 0)
    assert line.sum() == pytest.approx(1)
    middle = line[line.shape[0] // 2]
    assert middle.sum() == pytest.approx(1)
    np.testing.assert_allclose(middle[middle > 0.1], 1 / 9, rtol=0.05)
    np.testing.assert_allclose(motion_kernel(9, np.pi / 2, 0), line.T, atol=1e-12)
    bent = motion_kernel(9, 0, 0.25)
    assert bent.sum() == pytest.approx(1)
    assert (bent.sum(1) > 0).sum() > 2


def test_motion_moves_no_light() -> None:
    """A point spreads by its kernel, around its own place; a flat image stays."""
    flat = np.full((20, 24, 3), 77, np.uint8)
    np.testing.assert_array_equal(with_motion(flat, 15, (1,)), flat)
    point = np.zeros((41, 41, 1), np.float32)
    point[20, 20] = 255
    spread = with_motion(point, 15, (3,))[..., 0] / 255
    assert spread.sum() == pytest.approx(1, abs=0.1)  # rounded to 8 bit
    center = np.array([(axis * spread).sum() / spread.sum() for axis in np.mgrid[:41, :41]])
    np.testing.assert_allclose(center, 20, atol=0.5)
    assert not np.array_equal(with_motion(point, 15, (4,))[..., 0] / 255, spread)


def test_a_blurred_crop_belongs_to_its_sharp_one(tmp_path: Path) -> None:
    recipe = Deblurring(steps=1, batch=2, patch=32, window=4)
    given, wanted = recipe.draw(pairs(tmp_path, 1), 0)
    assert given.shape == wanted.shape == (2, 3, 32, 32)
    assert 0 < np.abs(given - wanted).mean() < 0.5 * np.abs(wanted[0] - wanted[1]).mean()
    np.testing.assert_array_equal(recipe.draw(pairs(tmp_path, 1), 0)[0], given)
    with pytest.raises(NystraError, match="multiple of 8 times"):
        dataclasses.replace(recipe, patch=24).check()


def test_small_frames_are_those_of_the_published_video() -> None:
    """Except at borders, whose treatment is not known: to a gray level in the mean."""
    for name in ("Frame 001.png", "Frame 004.png"):
        large = rgb(shared_path("data", "vid4", "calendar") / name)
        published = rgb(shared_path("data", "vid4", "L_input") / name).astype(int)
        difference = np.abs(reduced(large) - published)[3:-3, 3:-3]
        assert difference.mean() < 1


def test_a_video_moves_over_its_photograph() -> None:
    image = photograph(1)
    video = moving(image, 6, 64, np.random.default_rng(0))
    places = []
    for frame in video:
        found = [
            (y, x)
            for y in range(image.shape[0] - 63)
            for x in range(image.shape[1] - 63)
            if np.array_equal(image[y : y + 64, x : x + 64], frame)
        ]
        places.append(found[0])
    steps = np.diff(np.array(places), axis=0)
    assert np.abs(steps).max() <= 7
    assert np.ptp(steps, axis=0).max() <= 1  # whole pixels of a constant velocity
    assert np.abs(steps).max() > 0


@pytest.mark.full
def test_a_video_network_starts_as_bilinear_and_learns(tmp_path: Path) -> None:
    examples = pairs(tmp_path, 1)
    given, wanted = VIDEO.draw(examples, 0)
    assert given.shape == (1, 4, 3, 8, 8)
    assert wanted.shape == (1, 4, 3, 32, 32)
    before = VIDEO.network().state_dict()
    with torch.no_grad():
        start = VIDEO.network()(torch.from_numpy(given))[0]
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(given[0]), scale_factor=4.0, mode="bilinear"
    )
    torch.testing.assert_close(start, expected)
    weights = train(VIDEO, examples, tmp_path / "state.pt")
    same = {name for name in before if torch.equal(before[name], weights[name])}
    assert all(name in same for name in before if name.startswith("spynet"))
    assert "conv_last.weight" not in same
    write_weights(tmp_path / "v.safetensors", weights, VIDEO, examples)
    assert load(tmp_path / "v.safetensors").facts.task == "video"


def test_a_network_of_patches_starts_near_bilinear_and_learns(tmp_path: Path) -> None:
    recipe = EnlargingByCsnln(steps=1, batch=1, patch=16, width=8)
    yy, xx = np.mgrid[:32, :32] / 31
    image = torch.from_numpy(np.stack((yy, xx, 0.5 + 0.3 * np.sin(6 * yy)))[None]).float()
    small = torch.nn.functional.avg_pool2d(image, 2)
    network = recipe.network()
    with torch.no_grad():
        start = network(small)
    expected = torch.nn.functional.interpolate(small, scale_factor=2.0, mode="bilinear")
    assert float((start - expected)[..., 4:-4, 4:-4].abs().mean()) < 0.03
    examples = pairs(tmp_path, 2)
    weights = train(recipe, examples, tmp_path / "state.pt")
    for part in ("up_attention.conv_match_1", "up_attention.conv_assembly", "encoder.body"):
        name = f"SEM.multi_source_projection.{part}.0.weight"
        assert not torch.equal(dict(network.named_parameters())[name], weights[name]), part
    write_weights(tmp_path / "c.safetensors", weights, recipe, examples)
    loaded = load(tmp_path / "c.safetensors")
    assert (loaded.facts.architecture, loaded.facts.outputs[0].multiple) == ("csnln", 2)


@pytest.mark.parametrize(
    ("changed", "message"), [({"scale": 3}, "--scale 3"), ({"width": 9}, "even")]
)
def test_patches_that_cannot_be_trained(changed: dict[str, int], message: str) -> None:
    with pytest.raises(NystraError, match=message):
        EnlargingByCsnln(**changed).check()
