"""A third-party network behind nystra's interface: any size in, a picture of its scale out."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from ..layers.padding import crop
from .sides import Sides
from .tracing import traceable


class ForeignNetwork(nn.Module):
    """Pads, calls the network, crops: (B, C, H, W), and a mask where it takes one.

    The output is not clipped to 0..1, as spandrel's own call does: a check sees what is beyond.
    """

    def __init__(
        self, network: nn.Module, call: Callable[..., Tensor], sides: Sides, scale: int
    ) -> None:
        """Wrap a network.

        Args:
            network: The module with its weights.
            call: (network, inputs) -> the picture among its outputs, in 0..1.
            sides: How its inputs are padded.
            scale: Output side over input side.
        """
        super().__init__()
        self.network, self.call = network, call
        self.sides, self.scale = sides, scale

    def forward(self, image: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the picture (B, C', H * scale, W * scale)."""
        height, width = image.shape[2], image.shape[3]
        # Some networks write into their inputs: they get a copy.
        inputs = (image,) if mask is None else (image, mask)
        padded = [self.sides.pad(tensor.clone()) for tensor in inputs]
        with traceable(self.network, self.call):
            output = self.call(self.network, *padded)
        if self.sides.multiple == 1:
            return output
        return crop(output, height * self.scale, width * self.scale)
