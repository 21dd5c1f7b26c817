"""A module to compute, and a call of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...core.errors import UnsupportedModelError, foreign_reason
from ...core.ports.port import Port, Shape
from ...models.own.network import OwnNetwork
from ...models.own.plain_copy import copy_network
from ...models.own.tensor_ports import ports_of
from ...models.sizes.calls import is_close
from ...models.sizes.given import copy_sharing_weights
from ...models.sizes.plain_run import run_plainly
from ...models.spandrel.adapters import adapt
from ..attention.full.parameters import Full
from ..attention.plan import Plan
from ..tracing.values_read import refuse_values_read
from .call import OfTensors, Structure

AUTO = "auto"

_SUPPORTED = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Request:
    """What `accelerate` was asked for.

    Attributes:
        plan: The mechanism of each site.
        backend: ``auto`` or the name of a backend.
        precision: The arithmetic of the session, or None.
    """

    plan: Plan
    backend: str
    precision: str | None

    @property
    def is_exact(self) -> bool:
        """Whether the result is that of the module."""
        mechanisms = (self.plan.default, *self.plan.sites.values())
        return all(isinstance(mechanism, Full) for mechanism in mechanisms)


@dataclass(frozen=True)
class Problem:
    """A module to compute, and a call of it.

    Attributes:
        request: What was asked for.
        module: The module as it is, and the arguments of the call.
        tensors: The tensors of the call, as they were passed.
        gives: What the module returned.
        network: The module in float32 on the CPU: tensors in, a tuple of tensors out.
        inputs: The tensors of the call in float32 on the CPU.
        expected: What the network returns for them.
        ports: Inputs and outputs of the network.
    """

    request: Request
    module: OfTensors
    tensors: Sequence[Tensor]
    gives: Structure
    network: nn.Module
    inputs: Sequence[Tensor]
    expected: Sequence[Tensor]
    ports: tuple[tuple[Port, ...], tuple[Port, ...]]

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of its tensors."""
        return tuple(tuple(tensor.shape) for tensor in self.tensors)


def problem_of(module: OfTensors, tensors: Sequence[Tensor], request: Request) -> Problem:
    """Return the problem of a module.

    Whether it is random or keeps something of a call is found by the export.

    Args:
        module: A module of tensors, with weights of its own; it is run, which may change it.
        tensors: The tensors of the call.
        request: What is asked for.

    Raises:
        UnsupportedModelError: No file can compute it, or no file of nystra.
        Exception: Whatever the module raises.
    """
    network = copy_network(OwnNetwork(module))
    adapt(network)
    arguments = [tensor.clone() for tensor in tensors]
    gives, returned = Structure.of(module.call(arguments))
    if not is_close(arguments, tensors, 0.0):
        raise UnsupportedModelError("the module writes to its inputs")
    for tensor in (*tensors, *returned):
        if tensor.dtype not in _SUPPORTED:
            raise UnsupportedModelError(f"a tensor is {tensor.dtype}, expected float32 or half")
    inputs = [tensor.to("cpu", torch.float32) for tensor in tensors]
    try:
        with run_plainly():
            clones = [tensor.clone() for tensor in inputs]
            refuse_values_read(copy_sharing_weights(network), clones)
            expected = network(*(tensor.clone() for tensor in inputs))
    except Exception as error:  # of its code or of any operator
        raise UnsupportedModelError(
            f"the module cannot be followed in float32 on the CPU: {foreign_reason(error)}"
        ) from error
    ports = ports_of(inputs, expected)
    return Problem(request, module, tensors, gives, network, inputs, expected, ports)
