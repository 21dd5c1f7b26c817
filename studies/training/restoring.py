"""The common parts of the trainings on photographs: crops, the L1 loss, PSNR."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nystra.core.option import option
from nystra.core.option_kinds import Number

from .data import ImageData, Pair
from .recipe import Recipe

_HELD_OUT = 5  # images
_SMALLEST = 2  # side of an input of the held-out figure, in pixels


@dataclass(frozen=True)
class Restoring(Recipe):
    """A training on crops of the photographs in ``train/``, evaluated on those in ``val/``.

    Attributes:
        patch: Side of a crop of the network's input, in pixels.
    """

    patch: int = option(Number(48, "side of a crop of the input, in pixels", 1))

    @abstractmethod
    def read(self, folder: Path, smallest: int, most: int | None = None) -> list[Pair]:
        """Read the photographs of a folder, as `read_pairs` does."""

    @abstractmethod
    def draw(
        self, examples: Sequence[Pair], step: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return inputs and targets of a step, 0..1, independently of other steps."""

    @abstractmethod
    def example(self, pair: Pair, number: int) -> ImageData:
        """Return the network's input for a held-out photograph, uint8 (H, W, 3)."""

    @abstractmethod
    def psnr(self, output: Tensor, truth: Tensor) -> float:
        """Return the PSNR in dB of images (H, W, 3), 0..255, as usual for the task."""

    def training_set(self, data: Path) -> list[Pair]:
        """Return the photographs below ``train/``."""
        return self.read(data / "train", self.patch)

    def held_out(self, data: Path) -> list[Pair]:
        """Return the first photographs below ``val/``."""
        return self.read(data / "val", _SMALLEST, most=_HELD_OUT)

    def loss(self, output: Tensor, wanted: Tensor) -> Tensor:
        """Return the mean absolute difference."""
        return (output - wanted).abs().mean()

    def figure(self, weights: Mapping[str, Tensor], held_out: Sequence[Pair]) -> str:
        """Return the mean PSNR as text."""
        return f"{mean_psnr(self, weights, held_out):.2f} dB"


def mean_psnr(recipe: Restoring, weights: Mapping[str, Tensor], pairs: Sequence[Pair]) -> float:
    """Return the mean PSNR in dB over held-out photographs, the output in 8 bit."""
    network = recipe.network().eval()
    network.load_state_dict(dict(weights))
    figures = []
    for number, pair in enumerate(pairs):
        example = torch.from_numpy(recipe.example(pair, number)).permute(2, 0, 1)[None].float()
        with torch.no_grad():
            output = network(example / 255.0).clamp(0, 1).mul(255.0).round()[0].permute(1, 2, 0)
        figures.append(recipe.psnr(output, torch.from_numpy(pair.large).float()))
    return sum(figures) / len(figures)


def psnr_of_error(error: Tensor) -> float:
    """Return the PSNR in dB of differences of values 0..255."""
    return 10 * math.log10(255.0**2 / max(float(error.double().square().mean()), 1e-9))
