"""What decides a training: the part that every network has in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...plugins.errors import NystraError
from .data import Pair, Picture

_WARM_UP = 0.02  # of all steps
_LAST_RATE = 0.005  # of the highest learning rate


def setting(default: Any, words: str) -> Any:
    """Return a field of a recipe; the command line makes a flag of it."""
    return field(default=default, metadata={"help": words})


@dataclass(frozen=True)
class Recipe(ABC):
    """Everything that decides the result of a training, besides the photographs.

    Attributes:
        architecture: Of the network, as in the registry.
        stored: Type of the weights in the file.
        seed: Of the start weights and of the crops.
        steps: Number of optimiser steps.
        batch: Crops a step.
        patch: Side of a crop of the network's input, in pixels.
        rate: Highest learning rate.
    """

    architecture: ClassVar[str]
    stored: ClassVar[torch.dtype] = torch.float32

    seed: int = setting(0, "of the start weights and of the crops")
    steps: int = setting(3000, "optimiser steps")
    batch: int = setting(4, "crops a step")
    patch: int = setting(48, "side of a crop of the input, in pixels")
    rate: float = setting(2e-3, "highest learning rate")

    @abstractmethod
    def hyper(self) -> dict[str, Any]:
        """Return the constructor arguments of the network."""

    @abstractmethod
    def network(self) -> nn.Module:
        """Return the network as the training starts with it."""

    @abstractmethod
    def read(self, folder: Path, smallest: int, most: int | None = None) -> list[Pair]:
        """Read the photographs of a folder, as `read_pairs` does."""

    @abstractmethod
    def draw(
        self, pairs: Sequence[Pair], step: int
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return inputs and targets of a step, 0..1; a step never depends on another."""

    @abstractmethod
    def example(self, pair: Pair, number: int) -> Picture:
        """Return what the network is given for a held-out photograph, uint8 (H, W, 3)."""

    @abstractmethod
    def psnr(self, output: Tensor, truth: Tensor) -> float:
        """Return the PSNR in dB of pictures (H, W, 3), 0..255, as the task is judged."""

    def check(self) -> None:
        """Check the settings against each other.

        Raises:
            NystraError: One is not above 0.
        """
        for name, value in vars(self).items():
            numbers = value if isinstance(value, tuple) else (value,)
            if name != "seed" and not isinstance(value, bool) and min(numbers) <= 0:
                raise NystraError(f"--{name} {value} must be above 0")

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step: a linear warm-up, then a cosine."""
        warm = max(1, round(self.steps * _WARM_UP))
        if step < warm:
            return self.rate * (step + 1) / warm
        way = (step - warm) / max(1, self.steps - warm)
        return self.rate * (_LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * way)))


def mean_psnr(recipe: Recipe, weights: Mapping[str, Tensor], pairs: Sequence[Pair]) -> float:
    """Return the mean PSNR in dB over held-out photographs, the output in 8 bit."""
    network = recipe.network().eval()
    network.load_state_dict(dict(weights))
    figures = []
    for number, pair in enumerate(pairs):
        given = torch.from_numpy(recipe.example(pair, number)).permute(2, 0, 1)[None].float()
        with torch.no_grad():
            output = network(given / 255.0).clamp(0, 1).mul(255.0).round()[0].permute(1, 2, 0)
        figures.append(recipe.psnr(output, torch.from_numpy(pair.large).float()))
    return sum(figures) / len(figures)


def psnr_of_error(error: Tensor) -> float:
    """Return the PSNR in dB of differences of values 0..255."""
    return 10 * math.log10(255.0**2 / max(float(error.double().square().mean()), 1e-9))
