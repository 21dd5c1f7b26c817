"""The ports of a network for the tensors that it takes and returns."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...core.errors import UnsupportedModelError
from ...core.ports.port import FRAMES_AXES, IMAGE_AXES, LOGITS_AXES, Port


def ports_of(
    tensors: Sequence[Tensor], returned: Sequence[Tensor]
) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """Return the inputs and outputs of a network for the tensors of a call.

    The first input is an image (B, C, H, W) or frames (B, T, C, H, W); further images of one
    channel are masks, others references.

    Raises:
        UnsupportedModelError: They are no images of a whole scale, frames or logits.
    """
    inputs = [_input(tensor, place, tensors[0]) for place, tensor in enumerate(tensors)]
    outputs = [_output(tensor, place, tensors[0]) for place, tensor in enumerate(returned)]
    in_ports = [port for port in inputs if port]
    out_ports = [port for port in outputs if port]
    if not (
        in_ports and out_ports and len(in_ports) == len(inputs) and len(out_ports) == len(outputs)
    ):
        raise UnsupportedModelError(
            "expected a module of images: float tensors (B, C, H, W) or (B, T, C, H, W) in, images "
            f"of a whole scale or logits (B, K) out; this one takes {_shapes(tensors)} and returns "
            f"{_shapes(returned)}"
        )
    return tuple(in_ports), tuple(out_ports)


def _input(tensor: Tensor, place: int, first: Tensor) -> Port | None:
    name = f"input_{place}" if place else "input"
    if not tensor.is_floating_point() or tensor.dim() not in (4, 5):
        return None
    channels = {"channels": tensor.shape[-3]}
    if tensor.dim() == 5:
        return Port(name, "frames", FRAMES_AXES, channels)
    other = "mask" if tensor.shape[1] == 1 else "reference"
    own_size = tensor.shape[-2:] != first.shape[-2:]
    return Port(name, other if place else "image", IMAGE_AXES, channels, own_size=own_size)


def _output(tensor: Tensor, place: int, first: Tensor) -> Port | None:
    name = f"output_{place}" if place else "output"
    if not tensor.is_floating_point() or tensor.dim() not in (2, 4, 5):
        return None
    if tensor.dim() == 2:
        return Port(name, "logits", LOGITS_AXES, {"classes": tensor.shape[1]}, range=None)
    scale = tensor.shape[-1] // first.shape[-1]
    if scale < 1 or tensor.shape[-2:] != torch.Size(scale * side for side in first.shape[-2:]):
        return None
    role, axes = ("picture", IMAGE_AXES) if tensor.dim() == 4 else ("frames", FRAMES_AXES)
    return Port(name, role, axes, {"channels": tensor.shape[-3]}, multiple=scale)


def _shapes(tensors: Sequence[Tensor]) -> str:
    return ", ".join(f"{tuple(tensor.shape)} {tensor.dtype}" for tensor in tensors) or "no tensors"
