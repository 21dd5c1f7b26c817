"""What decides a training: the part that every network has in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nystra.core.errors import NystraError

_WARM_UP = 0.02  # of all steps
_LAST_RATE = 0.005  # of the highest learning rate


def setting(default: Any, words: str) -> Any:
    """Return a field of a recipe; the command line makes a flag of it."""
    return field(default=default, metadata={"help": words})


@dataclass(frozen=True)
class Recipe(ABC):
    """Everything that decides the result of a training, besides the data.

    Attributes:
        architecture: Of the network, as in the registry.
        stored: Type of the weights in the file.
        seed: Of the start weights and of what is drawn.
        steps: Number of optimiser steps.
        batch: Examples a step.
        rate: Highest learning rate.
        start: Weights to start from, a file or the name of a shipped one; "" for those as built.
    """

    architecture: ClassVar[str]
    stored: ClassVar[torch.dtype] = torch.float32

    seed: int = setting(0, "of the start weights and of what is drawn")
    steps: int = setting(3000, "optimiser steps")
    batch: int = setting(4, "examples a step")
    rate: float = setting(2e-3, "highest learning rate")
    start: str = setting("", "weights to start from, a .safetensors file or a shipped name (none)")

    @abstractmethod
    def hyper(self) -> dict[str, Any]:
        """Return the constructor arguments of the network."""

    @abstractmethod
    def network(self) -> nn.Module:
        """Return the network as the training starts with it."""

    @abstractmethod
    def training_set(self, data: Path) -> Sequence[Any]:
        """Return the examples to train on.

        Args:
            data: The folder that was given.

        Raises:
            NystraError: They are not there, or not readable.
        """

    @abstractmethod
    def held_out(self, data: Path) -> Sequence[Any]:
        """Return the examples that the figure is of; as `training_set`."""

    @abstractmethod
    def draw(self, examples: Sequence[Any], step: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return inputs and what is wanted of a step; a step never depends on another."""

    @abstractmethod
    def loss(self, output: Tensor, wanted: Tensor) -> Tensor:
        """Return what a step makes smaller."""

    @abstractmethod
    def figure(self, weights: Mapping[str, Tensor], held_out: Sequence[Any]) -> str:
        """Return how good a network of these weights is, in words: ``36.2 dB``."""

    def metadata(self, examples: Sequence[Any]) -> dict[str, Any]:
        """Return what the file says besides its tensors.

        Args:
            examples: What `training_set` gave.
        """
        return self.hyper()

    def check(self) -> None:
        """Check the settings against each other.

        Raises:
            NystraError: One is not above 0.
        """
        for name, value in vars(self).items():
            numbers = value if isinstance(value, tuple) else (value,)
            if name != "seed" and not isinstance(value, (bool, str)) and min(numbers) <= 0:
                raise NystraError(f"--{name} {value} must be above 0")

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step: a linear warm-up, then a cosine."""
        warm = max(1, round(self.steps * _WARM_UP))
        if step < warm:
            return self.rate * (step + 1) / warm
        way = (step - warm) / max(1, self.steps - warm)
        return self.rate * (_LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * way)))
