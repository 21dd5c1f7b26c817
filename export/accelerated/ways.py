"""Ways to compute a module: in PyTorch with nystra's operators, or a model file in an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ...core.ports.port import SIDES, Port
from ...runtime.session import Session

Function = TypeVar("Function", bound=Callable[..., Any])


def untraced(function: Function) -> Function:
    """Return a function that ``torch.compile`` calls as it is."""
    disabled: Function = torch.compiler.disable(function)
    return disabled


@dataclass(frozen=True)
class Limits:
    """The shapes that a way takes.

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


class Outputs:
    """The type and the device that results have to have, in order."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.kinds = [(tensor.device, tensor.dtype) for tensor in tensors]

    def converted(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return tensors of these types on these devices."""
        return [
            tensor.to(device, dtype)
            for tensor, (device, dtype) in zip(tensors, self.kinds, strict=True)
        ]


class InTorch(nn.Module):
    """A network with its attention replaced, for tensors of another type and device too."""

    def __init__(
        self, network: nn.Module, dtype: torch.dtype, outputs: Outputs, limits: Limits
    ) -> None:
        super().__init__()
        self.network, self.dtype, self.outputs, self.limits = network, dtype, outputs, limits

    def forward(self, *tensors: Tensor) -> list[Tensor]:
        """Return the outputs in order."""
        returned = self.network(*(tensor.to(self.dtype) for tensor in tensors))
        whole = (returned,) if isinstance(returned, Tensor) else tuple(returned)
        return self.outputs.converted(whole)


class InEngine:
    """A session that takes and returns tensors.

    A contiguous float32 tensor on the CPU is passed without a copy, and an array that the session
    returns becomes a tensor without one.
    """

    def __init__(self, session: Session, outputs: Outputs) -> None:
        self.session, self.outputs = session, outputs
        self.limits = Limits(session.facts.inputs, session.facts.size_minimum)

    @untraced
    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """Return the outputs in order.

        Raises:
            NystraError: The file does not take these shapes.
        """
        feeds = {
            port.name: tensor.detach().to("cpu", torch.float32).contiguous().numpy()
            for port, tensor in zip(self.session.inputs, tensors, strict=True)
        }
        arrays = self.session.run(feeds)
        return self.outputs.converted([torch.from_numpy(array) for array in arrays.values()])
