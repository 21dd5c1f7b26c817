"""A model file in a session, for tensors of PyTorch, and the shapes that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.ports.port import SIDES, Port
from ...runtime.session import Session


@dataclass(frozen=True)
class Limits:
    """The shapes that a file takes.

    Attributes:
        inputs: The inputs, whose lengths are fixed.
        minimum: Smallest side of an image, in pixels.
    """

    inputs: tuple[Port, ...]
    minimum: int

    def refusal(self, tensors: Sequence[Tensor]) -> str:
        """Return why tensors of these shapes are not taken, or ""."""
        first: dict[str, int] = {}
        for port, tensor in zip(self.inputs, tensors, strict=True):
            shape = tuple(tensor.shape)
            if len(shape) != len(port.axes):
                return f"an input has the shape {shape}, expected {len(port.axes)} axes"
            for axis, length in zip(port.axes, shape, strict=True):
                side = axis in SIDES
                if length != port.lengths.get(axis, length):
                    return f"an input has the {axis} {length}, expected {port.lengths[axis]}"
                if length < (self.minimum if side else 1):
                    return f"an input has the {axis} {length}, expected {self.minimum} or more"
                own = (side and port.own_size) or axis == "channels"
                if not own and length != first.setdefault(axis, length):
                    return f"inputs have the {axis} {first[axis]} and {length}, expected the same"
        return ""


class Engine:
    """A session that takes and returns tensors.

    A contiguous float32 tensor on the CPU is passed without a copy.
    """

    def __init__(self, session: Session, outputs: Sequence[Tensor]) -> None:
        """Take a session, and tensors that have the types and devices of its results."""
        self.session = session
        self.kinds = [(tensor.device, tensor.dtype) for tensor in outputs]
        self.limits = Limits(session.facts.inputs, session.facts.size_minimum)

    def compute(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs in order.

        Raises:
            NystraError: The file does not take these shapes.
        """
        feeds = {}
        for port, tensor in zip(self.session.inputs, tensors, strict=True):
            plain = tensor.detach().resolve_neg().to("cpu", torch.float32)
            feeds[port.name] = plain.contiguous().numpy()
        arrays = self.session.run(feeds).values()
        return [
            torch.from_numpy(array).to(device, dtype)
            for array, (device, dtype) in zip(arrays, self.kinds, strict=True)
        ]
