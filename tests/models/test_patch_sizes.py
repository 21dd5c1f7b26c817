"""Networks with patches of 14 pixels, which cut what is left over, and those of one odd size."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nystra.core.errors import UnsupportedModelError
from nystra.export.tracing.examples import describe_fixed_shape
from nystra.models import load
from nystra.models.own.network import Port


class Patches(nn.Module):
    """An image of whole patches: what is left over at the borders is cut."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, 8, side, side)
        self.back = nn.ConvTranspose2d(8, 3, side, side)

    def forward(self, image: Tensor) -> Tensor:
        return self.back(self.cut(image))


class OfOneSize(Patches):
    """The same with a place for each patch of 70x98 pixels."""

    def __init__(self) -> None:
        super().__init__(14)
        self.places = nn.Parameter(torch.randn(1, 8, 5, 7))

    def forward(self, image: Tensor) -> Tensor:
        return self.back(self.cut(image) + self.places)


class HalfAgain(nn.Module):
    """An image of one and a half times the sides."""

    def forward(self, image: Tensor) -> Tensor:
        return F.interpolate(image, scale_factor=1.5)


@pytest.mark.parametrize("side", [7, 12, 14, 18])
def test_the_multiple_is_that_of_the_patches(side: int) -> None:
    torch.manual_seed(0)
    network = Patches(side)
    loaded = load(network)
    assert loaded.facts.size_multiple == side
    image = torch.rand(1, 3, 5 * side, 3 * side)
    torch.testing.assert_close(loaded.network(image), network(image))
    assert loaded.network(image[..., 1:]).shape == image[..., 1:].shape


def test_a_network_of_one_size_is_probed_at_the_stated_one() -> None:
    with pytest.raises(UnsupportedModelError, match="fails for"):
        load(OfOneSize())
    assert load(OfOneSize(), probe_size=(70, 98)).facts.sides == {"height": 70, "width": 98}


def test_a_scale_that_is_no_integer_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"\(1, 3, 96, 96\) for \(1, 3, 64, 64\)"):
        load(HalfAgain())


def test_an_output_without_channels_is_refused_with_the_way_out() -> None:
    class Depth(nn.Module):
        def forward(self, image: Tensor) -> Tensor:
            return image.mean(1)

    with pytest.raises(UnsupportedModelError, match=r"axis of channels, `output\[:, None\]`; see"):
        load(Depth(), probe_size=(56, 56))


def test_a_stated_size_that_is_cut_is_refused_with_the_reason() -> None:
    with pytest.raises(UnsupportedModelError, match=r"\(patches\), give `static` such sides"):
        load(Patches(14), probe_size=(64, 64))


def test_the_advised_size_fits() -> None:
    port = Port("image", "image", lengths={"channels": 1}, multiple=14)
    assert describe_fixed_shape([port]) == "1x1x70x70"
