"""A model file in a session, for calls of a module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...core.errors import NystraError
from ...core.ports.port import Shape
from ...runtime.session import Session
from .call import Structure


@dataclass(frozen=True)
class Engine:
    """A session that computes calls like the first one.

    Attributes:
        session: The session.
        takes: The arguments of the first call.
        gives: What the module returned.
        shapes: The shapes of the tensors of that call.
    """

    session: Session
    takes: Structure
    gives: Structure
    shapes: Sequence[Shape]

    def compute(self, arguments: Structure, tensors: Sequence[Tensor]) -> Any:
        """Return what the module returned.

        Raises:
            NystraError: The call is not one of those that are taken.
        """
        if arguments.key != self.takes.key:
            raise NystraError(
                "the arguments other than tensors, or the axes, types and devices of tensors, are "
                "not those of the first call"
            )
        shapes = [tuple(tensor.shape) for tensor in tensors]
        if self.gives.has_values and list(self.shapes) != shapes:
            raise NystraError(
                "the module returns values beside tensors, which are known for one size only"
            )
        return self.gives.fill(self.run(tensors))

    def run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs in order.

        A contiguous float32 tensor on the CPU is passed without a copy.

        Raises:
            NystraError: The file does not take these shapes.
        """
        self._refuse_sizes(tensors)
        feeds = {}
        for port, tensor in zip(self.session.inputs, tensors, strict=True):
            values = tensor.detach().resolve_neg().to("cpu", torch.float32)
            feeds[port.name] = values.contiguous().numpy()
        arrays = self.session.run(feeds).values()
        return [
            torch.from_numpy(array).to(kind.device, kind.dtype)
            for array, kind in zip(arrays, self.gives.kinds, strict=True)
        ]

    def _refuse_sizes(self, tensors: Sequence[Tensor]) -> None:
        """Raise NystraError for inputs of different sizes on one axis; a run compares the rest."""
        lengths: dict[str, int] = {}
        for port, tensor in zip(self.session.facts.inputs, tensors, strict=True):
            for place, name in port.free_axes().items():
                length = tensor.shape[place]
                if length != lengths.setdefault(name, length):
                    raise NystraError(
                        f"inputs have the {name} {lengths[name]} and {length}, expected the same"
                    )
