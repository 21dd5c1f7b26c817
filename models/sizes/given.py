"""A network as it was given: nothing of nystra's has padded, wrapped, shared or traced it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ...core.errors import is_out_of_memory
from ...core.ports.port import Port, image_size
from .python_state import PythonState

Module = TypeVar("Module", bound=nn.Module)


def copy_sharing_weights(network: Module) -> Module:
    """Return a copy that shares its weights.

    Some networks store tensors during a run or a trace; these go into the copy.
    """
    shared = {id(tensor): tensor for tensor in [*network.parameters(), *network.buffers()]}
    return copy.deepcopy(network, shared)


class GivenNetwork:
    """A network, and the call that its user makes.

    Every call runs a new copy, so that a result does not depend on earlier calls.

    Attributes:
        call: (network, inputs) -> output.
        inputs: Its inputs, in order.
        outputs: Its outputs, in order.
        state: What else its code kept before any call.
    """

    def __init__(
        self,
        network: nn.Module,
        call: Callable[..., Any],
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        state: PythonState | None = None,
    ) -> None:
        """Keep a copy that shares the weights of a network and never runs.

        Args:
            network: The network.
            call: (network, inputs) -> output.
            inputs: Its inputs, in order.
            outputs: Its outputs, in order.
            state: What its code kept before any call; None: what it keeps now.
        """
        self._network = copy_sharing_weights(network)
        self.call, self.inputs, self.outputs = call, tuple(inputs), tuple(outputs)
        self.state = PythonState(network, attributes=False) if state is None else state

    def __deepcopy__(self, _: dict[int, Any]) -> GivenNetwork:
        return self  # copies of a network are compared with the same one

    def fresh(self) -> nn.Module:
        """Return a copy that has not run; it shares parameters, and has its own buffers."""
        shared = {id(tensor): tensor for tensor in self._network.parameters()}
        return copy.deepcopy(self._network, shared)

    def run(self, inputs: Sequence[Tensor], *, double: bool = False) -> tuple[Tensor, ...]:
        """Return what the network returns, in the order of its outputs.

        Args:
            inputs: In order; they are not changed.
            double: Run it in float64.

        Raises:
            Exception: Whatever the network raises for inputs that it does not take.
        """
        network = self.fresh()
        if double:
            network = copy.deepcopy(network).double()
            inputs = [each.double() if each.is_floating_point() else each for each in inputs]
        return self.run_on(network, inputs)

    def run_on(self, network: nn.Module, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Run a network that `fresh` returned, which keeps what it sets; as `run`."""
        from .padded_network import in_order

        with torch.no_grad():
            returned = self.call(network, *(tensor.clone() for tensor in inputs))
        return in_order(returned, self.outputs)

    def outputs_for(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...] | None:
        """Return the outputs, or None where the network fails or returns another size.

        Args:
            inputs: Each (B, ..., H, W), or a condition of fewer axes.
        """
        try:
            returned = self.run(inputs)
        except Exception as error:  # any other error means that it does not take these inputs
            if is_out_of_memory(error):
                raise
            return None
        batch, (height, width) = inputs[0].shape[0], inputs[0].shape[-2:]
        for tensor, port in zip(returned, self.outputs, strict=True):
            size = {"batch": batch} | image_size(height * port.multiple, width * port.multiple)
            read = {axis: size[axis] for axis in port.axes if axis in size}
            free = {axis: n for axis, n in read.items() if axis not in port.lengths}
            lengths = dict(zip(port.axes, tensor.shape, strict=False))
            if any(lengths.get(axis) != length for axis, length in free.items()):
                return None
        return returned
