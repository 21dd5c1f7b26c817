"""The shipped photographs are like the inputs that a network is given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nystra.core.ports.port import Port
from nystra.export.load.images import calibration_feeds, photographs, read_sample
from nystra.models.facts import Facts

FOLDER = next(iter(photographs().values())).parent


def facts(scale: int, window: int = 8) -> Facts:
    channels = {"channels": 3}
    return Facts(
        architecture="toy",
        task="restoration",
        inputs=(Port("input", "image", lengths=channels, multiple=window),),
        outputs=(Port("output", "picture", lengths=channels, multiple=scale),),
        tiling="supported",
        license="none",
        window=(window, window),
    )


def contrast(pixels: np.ndarray) -> float:
    """Mean difference of neighboring pixels."""
    return float(np.abs(np.diff(pixels, axis=1)).mean())


@pytest.mark.parametrize(("scale", "side"), [(1, 160), (2, 160), (3, 80), (4, 80), (8, 80)])
def test_photographs_are_reduced_for_networks_that_enlarge_more(scale: int, side: int) -> None:
    for path in photographs().values():
        assert read_sample(facts(scale), path, None).shape == (side, side, 3)


def test_reduced_photographs_are_sharper_and_in_range() -> None:
    for path in photographs().values():
        whole = read_sample(facts(2), path, None)
        reduced = read_sample(facts(4), path, None)
        assert contrast(reduced) > 1.2 * contrast(whole)
        assert reduced.min() >= 0
        assert reduced.max() <= 1


def test_the_images_of_a_user_stay_as_they_are() -> None:
    feeds = calibration_feeds(facts(4), FOLDER)
    assert {feed["input"].shape for feed in feeds.values()} == {(1, 3, 160, 160)}


def test_photographs_are_not_reduced_below_two_windows() -> None:
    path: Path = photographs()["chelsea"]
    assert read_sample(facts(4, window=48), path, None).shape == (160, 160, 3)
    feeds = calibration_feeds(facts(4, window=48), None)
    assert {feed["input"].shape for feed in feeds.values()} == {(1, 3, 96, 96)}
