"""A network behind nystra's interface: any size in, an image of its scale out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from torch import Tensor, nn

from ...core.errors import UnsupportedModelError
from ...core.ports.port import SIDES, Port
from ..layers.padding import crop
from .borders import Sides
from .plain_run import plain_run

Call: TypeAlias = Callable[..., Any]
"""(network, inputs in the order of its ports) -> what it returns."""

_DECLARE = (
    "declare all of its outputs as ports of an OwnNetwork, or call it in a module that returns "
    "only the picture; see docs/own.md"
)


def call_plainly(network: nn.Module, *inputs: Tensor) -> Any:
    """Return what a network returns for its inputs."""
    with plain_run():
        return network(*inputs)


class PaddedNetwork(nn.Module):
    """Pads the inputs, calls a network, crops its outputs.

    An image is not clipped to its range, so that checks see values beyond.

    Attributes:
        network: The module with its weights.
        sides: The padding of the inputs.
        outputs: The expected outputs, in order.
        call: The function that calls it.
    """

    def __init__(
        self,
        network: nn.Module,
        sides: Sides,
        outputs: Sequence[Port],
        call: Call = call_plainly,
    ) -> None:
        super().__init__()
        self.network, self.sides, self.call = network, sides, call
        self.outputs = tuple(outputs)

    def padded_to(self, multiple: int) -> PaddedNetwork:
        """Return the same network, its inputs padded to another multiple."""
        sides = Sides(multiple, self.sides.border)
        return PaddedNetwork(self.network, sides, self.outputs, self.call)

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the output, or a tuple of several outputs.

        Args:
            *inputs: Each (..., H, W).

        Raises:
            UnsupportedModelError: The outputs of the network do not fit its ports.
        """
        height, width = inputs[0].shape[-2:]
        # Some networks write into their inputs: they get a copy.
        padded = [self.sides.pad(tensor.clone()) for tensor in inputs]
        returned = in_order(self.call(self.network, *padded), self.outputs)
        if self.sides.multiple > 1:
            returned = tuple(
                _cropped(tensor, port, height, width)
                for tensor, port in zip(returned, self.outputs, strict=True)
            )
        return returned[0] if len(returned) == 1 else returned


def in_order(returned: Any, outputs: Sequence[Port]) -> tuple[Tensor, ...]:
    """Return the tensors that a network returned, in the order of its outputs.

    Args:
        returned: A tensor, a tuple or a list of them, or a dictionary or an object that has them
            by the names of the outputs.
        outputs: The expected outputs; a single one may be a tuple or list of one.

    Raises:
        UnsupportedModelError: It has another type, or another number of tensors.
    """
    names = [port.name for port in outputs]
    if isinstance(returned, Mapping):
        if not all(name in returned for name in names):
            raise UnsupportedModelError(
                f"the network returns a dictionary of {', '.join(map(str, returned)):.200}, "
                f"expected {', '.join(names)}: {_DECLARE}"
            )
        returned = [returned[name] for name in names]
    elif not isinstance(returned, (Tensor, tuple, list)):  # such as a dataclass
        returned = [getattr(returned, name, returned) for name in names]
    tensors = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
    if len(tensors) != len(outputs) or not all(isinstance(each, Tensor) for each in tensors):
        kinds = ", ".join(type(each).__name__ for each in tensors[:6])
        raise UnsupportedModelError(
            f"the network returns {len(tensors)} values ({kinds}), expected {len(outputs)} of the "
            f"kind Tensor: {_DECLARE}"
        )
    return tensors


def _cropped(tensor: Tensor, port: Port, height: int, width: int) -> Tensor:
    if port.axes[-2:] != SIDES:
        return tensor
    return crop(tensor, height * port.multiple, width * port.multiple)
