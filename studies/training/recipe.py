"""The common settings of all trainings."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nystra.core.option import Options, option
from nystra.core.option_kinds import Number, Text

_WARM_UP = 0.02  # of all steps
_LAST_RATE = 0.005  # of the highest learning rate


@dataclass(frozen=True)
class Recipe(Options, ABC):
    """All settings that determine the result of a training, besides the data.

    Attributes:
        architecture: Of the network, as in the registry.
        stored: Type of the weights in the file.
        seed: Of the start weights and of what is drawn.
        steps: Number of optimizer steps.
        batch: Examples a step.
        rate: Highest learning rate.
        start: Weights to start from, a file or the name of a shipped one; "" for those as built.
    """

    architecture: ClassVar[str]
    stored: ClassVar[torch.dtype] = torch.float32

    seed: int = option(Number(0, "of the start weights and of what is drawn", 0))
    steps: int = option(Number(3000, "optimizer steps", 1))
    batch: int = option(Number(4, "examples a step", 1))
    rate: float = option(Number(2e-3, "highest learning rate", 0, above=True))
    start: str = option(
        Text("", "weights to start from, a .safetensors file or a shipped name (none)")
    )

    @abstractmethod
    def hyper(self) -> dict[str, Any]:
        """Return the constructor arguments of the network."""

    @abstractmethod
    def network(self) -> nn.Module:
        """Return the network at the start of the training."""

    def adapted(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the weights to start from, by state-dict key, as this network takes them."""
        return weights

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
        """Return the examples for the reported figure; as `training_set`."""

    @abstractmethod
    def draw(self, examples: Sequence[Any], step: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return inputs and targets of a step, independently of other steps."""

    @abstractmethod
    def loss(self, output: Tensor, wanted: Tensor) -> Tensor:
        """Return the loss of a step."""

    @abstractmethod
    def figure(self, weights: Mapping[str, Tensor], held_out: Sequence[Any]) -> str:
        """Return the quality of a network with these weights as text: ``36.2 dB``."""

    def metadata(self, examples: Sequence[Any]) -> dict[str, Any]:
        """Return the metadata of the file.

        Args:
            examples: What `training_set` gave.
        """
        return self.hyper()

    @property
    def weight_decay(self) -> float:
        """Weight decay of AdamW; at 0 it is Adam."""
        return 0.0

    def check(self) -> None:  # most contradict nothing
        """Raise NystraError where settings contradict each other."""

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step: a linear warm-up, then a cosine."""
        warm = max(1, round(self.steps * _WARM_UP))
        if step < warm:
            return self.rate * (step + 1) / warm
        way = (step - warm) / max(1, self.steps - warm)
        return self.rate * (_LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * way)))
