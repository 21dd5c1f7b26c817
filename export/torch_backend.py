"""PyTorch as a thing to compare with: numpy in, numpy out."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn


class TorchBackend:
    """A network that is called with arrays, as ``runtime`` calls its backends.

    ``backend(image, *others)`` takes float32 (B, C, H, W) each and gives the network's output, with
    the copies to and from the device, when it is there.
    """

    def __init__(
        self, network: nn.Module, dtype: torch.dtype = torch.float32, device: str = "cpu"
    ) -> None:
        """Keep the network, or a copy of it in another precision or on another device."""
        self.dtype, self.device = dtype, torch.device(device)
        same = dtype == torch.float32 and self.device.type == "cpu"
        self.network = network if same else copy.deepcopy(network).to(self.device, dtype)

    def __call__(self, *images: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the output for an image and what else the network takes."""
        with torch.inference_mode():
            tensors = [
                torch.from_numpy(np.ascontiguousarray(one)).to(self.device, self.dtype)
                for one in images
            ]
            # The copy to the host waits for the device's work.
            output: npt.NDArray[Any] = self.network(*tensors).cpu().numpy()
            return output

    def run(self, feeds: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return the output for named inputs, which stand in the order of the arguments."""
        return self(*feeds.values())
