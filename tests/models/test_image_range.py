"""Networks that take images in 0..255 are told from others by the mean colors that they hold."""

import pytest
import torch
from torch import Tensor, nn

from nystra.models import load
from nystra.models.own.image_range import describe_range


class Centered(nn.Module):
    """Subtracts mean colors as a convolution does, as EDSR and networks after it."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.center = nn.Conv2d(3, 3, 1)
        self.center.weight.data = torch.eye(3)[:, :, None, None]
        self.center.bias.data = -scale * torch.tensor([0.4488, 0.4371, 0.4040])

    def forward(self, image: Tensor) -> Tensor:
        centered: Tensor = self.center(image)
        return centered


def test_mean_colors_in_0_to_255_are_named_with_what_to_do() -> None:
    expected = (
        "center.bias holds mean colors in 0..255, and the network is given images in 0..1: its "
        "forward has to multiply them by 255 and divide its output by 255"
    )
    assert expected in load(Centered(255.0)).warnings


class Scaled(nn.Module):
    """Takes images in 0..1 and multiplies them for such a network."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Centered(255.0)

    def forward(self, image: Tensor) -> Tensor:
        scaled: Tensor = self.network(image * 255) / 255
        return scaled


@pytest.mark.parametrize("network", [Centered(1.0), nn.Conv2d(3, 3, 1), Scaled()])
def test_other_networks_get_no_note(network: nn.Module) -> None:
    assert describe_range(network, lambda: network(torch.rand(1, 3, 8, 8))) == []
