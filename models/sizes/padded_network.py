"""A network behind nystra's interface: any size in, an image of its scale out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from torch import Tensor, nn

from ...core.errors import UnsupportedModelError
from ...core.ports.port import IMAGE_AXES, SIDES, Port
from ..layers.padding import crop
from .borders import Sides
from .given import GivenNetwork
from .plain_run import run_plainly

Call: TypeAlias = Callable[..., Any]
"""(network, inputs in the order of its ports) -> what it returns."""

_DECLARE = (
    "declare all of its outputs as ports of an OwnNetwork, or call it in a module that returns "
    "only the picture; see docs/own.md"
)


def call_plainly(network: nn.Module, *inputs: Tensor) -> Any:
    """Return what a network returns for its inputs."""
    with run_plainly():
        return network(*inputs)


class PaddedNetwork(nn.Module):
    """Pads the inputs, calls a network, crops its outputs.

    An image is not clipped to its range, so that checks see values beyond.

    Attributes:
        network: The module with its weights.
        sides: The padding of the inputs.
        outputs: The expected outputs, in order.
        call: The function that calls it.
        given: The network as it was given, which results are compared with; None if this module
            is what was given.
    """

    def __init__(
        self,
        network: nn.Module,
        sides: Sides,
        outputs: Sequence[Port],
        call: Call = call_plainly,
        given: GivenNetwork | None = None,
    ) -> None:
        super().__init__()
        self.network, self.sides, self.call = network, sides, call
        self.outputs = tuple(outputs)
        self.given = given

    def pad_to(self, multiple: int, each: tuple[int, ...] = ()) -> PaddedNetwork:
        """Return the same network, its inputs padded to other multiples, as those of `Sides`."""
        sides = replace(self.sides, multiple=multiple, each=each)
        return PaddedNetwork(self.network, sides, self.outputs, self.call, self.given)

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the output, or a tuple of several outputs.

        Args:
            *inputs: Each (B, ..., H, W), or a condition of fewer than 4 axes, which stays.

        Raises:
            UnsupportedModelError: The outputs of the network do not fit its ports.
        """
        height, width = inputs[0].shape[-2:]
        # Some networks write into their inputs: they get a copy.
        copies = [tensor.clone() for tensor in inputs]
        padded = [self.sides.pad(copy) if has_sides(copy) else copy for copy in copies]
        returned = in_order(self.call(self.network, *padded), self.outputs)
        if self.sides.multiple > 1:
            returned = tuple(
                _crop(tensor, port, height, width)
                for tensor, port in zip(returned, self.outputs, strict=True)
            )
        return returned[0] if len(returned) == 1 else returned


def has_sides(tensor: Tensor) -> bool:
    """Whether an input has a height and a width: all but conditions have."""
    return tensor.dim() >= len(IMAGE_AXES)


def in_order(returned: Any, outputs: Sequence[Port]) -> tuple[Tensor, ...]:
    """Return the tensors that a network returned, in the order of its outputs.

    Args:
        returned: A tensor, nested tuples and lists of them, or a dictionary or an object that has
            them by the names of the outputs. None is no output.
        outputs: The expected outputs; a single one may have any name.

    Raises:
        UnsupportedModelError: It has another type, another number of tensors, or complex numbers.
    """
    names = [port.name for port in outputs]
    entries = _entries(returned)
    if all(name in entries for name in names):
        values = [entries[name] for name in names]
    else:
        values = _flat([*entries.values()] if entries and len(names) == 1 else returned)
    if len(values) != len(names) and entries:
        raise UnsupportedModelError(
            f"the network returns a {type(returned).__name__} of {', '.join(entries):.200}, "
            f"expected {', '.join(names)}: {_DECLARE}"
        )
    if len(values) != len(outputs) or not all(isinstance(each, Tensor) for each in values):
        kinds = ", ".join(type(each).__name__ for each in values[:6])
        raise UnsupportedModelError(
            f"the network returns {len(values)} values ({kinds}), expected {len(outputs)} of the "
            f"kind Tensor: {_DECLARE}"
        )
    if any(each.is_complex() for each in values):
        raise UnsupportedModelError(
            "the network returns complex numbers, expected real ones: return their parts as "
            "channels (`torch.view_as_real`) or one of them (`.real`); see docs/own.md"
        )
    return tuple(values)


def _entries(returned: Any) -> dict[str, Any]:
    if isinstance(returned, Mapping):
        return {str(name): value for name, value in returned.items()}
    if hasattr(returned, "_asdict"):  # a named tuple
        return dict(returned._asdict())
    is_plain = isinstance(returned, (Tensor, tuple, list)) or not hasattr(returned, "__dict__")
    return {} if is_plain else dict(vars(returned))


def _flat(returned: Any) -> list[Any]:
    if isinstance(returned, (tuple, list)):
        return [each for value in returned for each in _flat(value)]
    return [] if returned is None else [returned]


def _crop(tensor: Tensor, port: Port, height: int, width: int) -> Tensor:
    if port.axes[-2:] != SIDES:
        return tensor
    return crop(tensor, height * port.multiple, width * port.multiple)
