"""Signs that a network takes images in 0..255."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

_CHANNELS = 3
_LEAST, _LARGEST = 50.0, 200.0
"""Means of the colors of photographs are about 0.4, which is 100 of 255."""


def describe_range(module: nn.Module, run: Callable[[], object]) -> list[str]:
    """Return a note if a network adds or subtracts mean colors in 0..255, as MeanShift of EDSR.

    There is none if the layer that holds them is given values in 0..255, since forward multiplies.

    Args:
        module: The network.
        run: Calls it with an image in 0..1.
    """
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if _is_mean_color(tensor) and not _takes_large_values(module, name.rpartition(".")[0], run):
            text = (
                f"{name} holds mean colors in 0..255, and the network is given images in 0..1: its "
                "forward has to multiply them by 255 and divide its output by 255"
            )
            return [text]
    return []


def _is_mean_color(tensor: Tensor) -> bool:
    if tensor.numel() != _CHANNELS or not tensor.is_floating_point():
        return False
    size = tensor.detach().abs()
    return bool(torch.all((size > _LEAST) & (size < _LARGEST)))


def _takes_large_values(module: nn.Module, layer: str, run: Callable[[], object]) -> bool:
    largest = 0.0

    def measure(_layer: nn.Module, inputs: tuple[object, ...]) -> None:
        nonlocal largest
        for value in inputs:
            if isinstance(value, Tensor):
                largest = max(largest, float(value.abs().max()))

    with module.get_submodule(layer).register_forward_pre_hook(measure):
        run()
    return largest > _LEAST
