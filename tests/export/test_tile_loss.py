"""The loss of tiles that an export measures where layers depend on the whole image."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nystra.core.ports.port import Port
from nystra.export.validate.tiles import measure_tiles
from nystra.models.facts import Facts
from nystra.models.registry import OWN


class OfPixels(nn.Module):
    """A network of single pixels: tiles change nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 0.5 + 0.1


class OfMeans(nn.Module):
    """A network that subtracts the mean of the whole image."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x - x.mean((2, 3), keepdim=True) + 0.5
        return y


class OfMaxima(nn.Module):
    """A network that divides by the largest value of the whole image."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x / (x.amax((1, 2, 3), keepdim=True) + 0.1)
        return y


class OfRows(nn.Module):
    """A network that adds up rows."""

    def forward(self, x: Tensor) -> Tensor:
        return x + x.cumsum(2) / 64


def facts(tiling: str, **more: Any) -> Facts:
    channels = {"channels": 3}
    return Facts(
        architecture="toy",
        task="restoration",
        inputs=(Port("input", "image", lengths=channels, multiple=8),),
        outputs=(Port("output", "picture", lengths=channels),),
        tiling=tiling,
        license="CC0-1.0",
        **more,
    )


@pytest.mark.parametrize("tiling", ["discouraged", "internal"])
def test_means_of_the_whole_image_lose_something_in_tiles(tiling: str) -> None:
    steps: list[str] = []
    assert measure_tiles(OfPixels(), {}, facts(tiling)) == ((64, 100.0), (128, 100.0))
    (small, at_64), (large, at_128) = measure_tiles(OfMeans(), {}, facts(tiling), steps.append)
    assert (small, large, steps) == (64, 128, ["tiles"])
    assert 5 < at_64 < at_128 < 40


@pytest.mark.parametrize("network", [OfMeans, OfMaxima, OfRows])
def test_tiles_of_own_networks_are_measured(network: type[nn.Module]) -> None:
    own = replace(facts("supported"), architecture=f"{OWN.name}:Net")
    assert measure_tiles(network(), {}, own)
    assert measure_tiles(OfPixels(), {}, own) == ()


def test_nothing_is_measured_where_no_image_is_cut() -> None:
    whole = facts("internal")
    image, mask = whole.inputs[0], Port("mask", "mask", lengths={"channels": 1})
    steps: list[str] = []
    for other in (
        facts("supported"),
        replace(whole, inputs=(image, mask)),
        replace(whole, outputs=(Port("output", "logits", lengths={"channels": 10}),)),
        whole.fix_lengths((1, 3, 32, 32)),
    ):
        assert measure_tiles(OfMeans(), {}, other, steps.append) == ()
    assert not steps


def test_values_reach_the_network_in_its_own_range() -> None:
    seen: list[Tensor] = []

    class Noted(OfPixels):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x)
            return super().forward(x)

    wide = facts("internal")
    wide = replace(wide, inputs=(replace(wide.inputs[0], range=(-1.0, 1.0)),))
    measure_tiles(Noted(), {}, wide)
    values = torch.cat([x.flatten() for x in seen])
    assert -1 <= values.min() < -0.5 < 0.5 < values.max() <= 1


def test_tiles_smaller_than_a_window_are_left_out() -> None:
    wide = facts("discouraged")
    wide = replace(wide, inputs=(replace(wide.inputs[0], multiple=96),))
    assert [side for side, _ in measure_tiles(OfMeans(), {}, wide)] == [128]
