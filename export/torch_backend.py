"""PyTorch as a thing to compare with: numpy in, numpy out."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn


class TorchBackend:
    """A network that is called with arrays, as ``runtime`` calls its backends.

    ``backend(image)`` takes float32 (B, C, H, W) and gives the network's output.
    """

    def __init__(self, network: nn.Module, dtype: torch.dtype = torch.float32) -> None:
        """Keep the network, or a copy of it in another precision."""
        self.dtype = dtype
        same = dtype == torch.float32
        self.network = network if same else copy.deepcopy(network).to(dtype)

    def __call__(self, image: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the output for an image, in the backend's precision."""
        with torch.inference_mode():
            tensor = torch.from_numpy(np.ascontiguousarray(image)).to(self.dtype)
            output: npt.NDArray[Any] = self.network(tensor).numpy()
            return output
