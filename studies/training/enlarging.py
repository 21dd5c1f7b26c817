"""Small SwinIR and HAT networks for super-resolution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nystra.core.errors import NystraError
from nystra.core.option import option
from nystra.core.option_kinds import Number, Switch
from nystra.models.hat.network import HAT
from nystra.models.layers.image_network import ImageNetwork
from nystra.models.swinir.network import SwinIR

from .data import ImageData, Pair, draw_batch, read_pairs
from .restoring import Restoring, psnr_of_error
from .settings import Counts

_LUMA = (65.481, 128.553, 24.966)  # BT.601 in studio swing, of RGB 0..1


@dataclass(frozen=True)
class Enlargement(Restoring):
    """The training of a network on bicubic reductions.

    Attributes:
        scale: Output side over input side.
    """

    scale: int = option(Number(2, "output side over input side", 1))

    def read(self, folder: Path, smallest: int, most: int | None = None) -> list[Pair]:
        """Read the photographs of a folder and reduce them."""
        return read_pairs(folder, self.scale, smallest, most)

    def draw(
        self, examples: Sequence[Pair], step: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return small crops and the large ones that they were reduced from."""
        return draw_batch(examples, self.patch, self.batch, self.seed, step)

    def example(self, pair: Pair, number: int) -> ImageData:
        """Return the reduction."""
        return pair.small

    def psnr(self, output: Tensor, truth: Tensor) -> float:
        """Return the PSNR on the luma of BT.601 in studio swing, ``scale`` pixels of border out."""
        inside = slice(self.scale, -self.scale)
        return psnr_of_error(((output - truth) / 255.0 @ torch.tensor(_LUMA))[inside, inside])


@dataclass(frozen=True)
class Enlarging(Enlargement):
    """The training of a small SwinIR on bicubic reductions.

    Attributes:
        window: Side of the attention window.
        width: Channels of the map.
        depths: Blocks of each residual group.
        heads: Attention heads of every block.
        position_bias: Attention adds a relative position bias.
        mask: Shifted windows keep apart what the shift made neighbors.
    """

    architecture: ClassVar[str] = "swinir"
    kind: ClassVar[type[SwinIR | HAT]] = SwinIR

    window: int = option(Number(16, "side of the attention window", 1))
    width: int = option(Number(32, "channels of the map", 1))
    depths: tuple[int, ...] = option(Counts((6,), "blocks a group"))
    heads: int = option(Number(2, "attention heads of every block", 1))
    position_bias: bool = option(Switch("attention without bias", default=True))
    mask: bool = option(Switch("shifted windows see across the cut", default=True))

    def hyper(self) -> dict[str, Any]:
        """Return the constructor arguments of the network."""
        return {
            "upscale": self.scale,
            "window_size": self.window,
            "img_range": 1.0,
            "depths": list(self.depths),
            "embed_dim": self.width,
            "num_heads": [self.heads] * len(self.depths),
            "mlp_ratio": 2.0,
            "upsampler": "pixelshuffledirect",
            "position_bias": self.position_bias,
            "mask": self.mask,
        }

    def check(self) -> None:
        """Check the settings against each other."""
        if self.width % self.heads:
            raise NystraError(f"--width {self.width} must be a multiple of --heads {self.heads}")

    def network(self) -> ImageNetwork:
        """Return a network that starts as bilinear upscaling, with a nearly inactive transformer.

        The published network has no interpolating skip and has to learn one from a random start.
        Here three channels of the first convolution pass the image on and the last convolution
        enlarges them.
        """
        torch.manual_seed(self.seed)
        network = self.kind(**self.hyper())
        first, body = network.conv_first, cast(nn.Conv2d, network.conv_after_body)
        last = cast(nn.Conv2d, network.upsample[0])
        phases = [_linear_phase(phase, self.scale) for phase in range(self.scale)]
        with torch.no_grad():
            body.weight *= 0.1
            last.weight *= 0.1
            for parameter in (first.weight[:3], cast(Tensor, first.bias)[:3], last.weight[:, :3]):
                parameter.zero_()
            cast(Tensor, last.bias).zero_()
            for channel in range(3):
                first.weight[channel, channel, 1, 1] = 1.0
                for y, rows in enumerate(phases):
                    for x, columns in enumerate(phases):
                        output = (channel * self.scale + y) * self.scale + x
                        last.weight[output, channel] = torch.outer(rows, columns)
        return network

    def adapted(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return weights of a smaller scale with their last convolution repeated for this one.

        Each pixel of the smaller output becomes a square of equal pixels; what does not divide is
        left as it is, for ``load_state_dict`` to refuse.
        """
        names = [key for key in ("upsample.0.weight", "upsample.0.bias") if key in weights]
        return dict(weights) | {key: self._repeated(weights[key]) for key in names}

    def _repeated(self, last: Tensor) -> Tensor:
        """Return a weight or bias (3 s^2, ...) of scale s as (3 scale^2, ...)."""
        before = math.isqrt(last.shape[0] // 3)
        if before * before * 3 != last.shape[0] or self.scale % before:
            return last
        phases: Tensor = last.unflatten(0, (3, before, before))
        for axis in (1, 2):
            phases = phases.repeat_interleave(self.scale // before, axis)
        return torch.flatten(phases, 0, 2)


@dataclass(frozen=True)
class EnlargingByHat(Enlarging):
    """The training of a small HAT on bicubic reductions.

    Attributes:
        conv_scale: What the convolutions of a block count beside its attention; published networks
            of 144 channels and more have 0.01.
    """

    architecture: ClassVar[str] = "hat"
    kind: ClassVar[type[SwinIR | HAT]] = HAT

    conv_scale: float = option(
        Number(0.1, "what convolutions count beside attention", 0, above=True)
    )

    def hyper(self) -> dict[str, Any]:
        """Return the constructor arguments of the network."""
        more = {"compress_ratio": 3, "squeeze_factor": 8, "conv_scale": self.conv_scale}
        return super().hyper() | more


def _linear_phase(phase: int, scale: int) -> Tensor:
    offset = (phase + 0.5) / scale - 0.5
    return torch.tensor([max(0.0, -offset), 1.0 - abs(offset), max(0.0, offset)])
