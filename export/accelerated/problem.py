"""A module to compute, and a call of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ...core.errors import UnsupportedModelError
from ...core.ports.port import Port
from ...models.own.fingerprint import computed_by
from ...models.own.network import OwnNetwork
from ...models.own.plain_copy import plain_copy
from ...models.own.tensor_ports import ports_of
from ...models.sizes.plain_run import plain_run
from ...models.spandrel.adapters import adapt
from ..attention.full.parameters import Full
from ..attention.plan import Plan
from .call import Caller, OfTensors, Parameters, Structure
from .refusals import refuse_side_effects, refuse_values_read

AUTO = "auto"

_TAKEN = (torch.float32, torch.float16, torch.bfloat16)


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
        network: The module in float32 on the CPU: tensors in, a tuple of tensors out.
        tensors: The tensors of the call, as they were passed.
        inputs: The same in float32 on the CPU.
        expected: What the network returns for them.
        returned: What the module returned for them.
        call: Calls the module as it is.
        ports: Inputs and outputs of the network.
        code: What the network computes, from `computed_by`.
        request: What was asked for.
    """

    network: nn.Module
    tensors: Sequence[Tensor]
    inputs: Sequence[Tensor]
    expected: Sequence[Tensor]
    returned: Sequence[Tensor]
    call: Callable[[], object]
    ports: tuple[tuple[Port, ...], tuple[Port, ...]]
    code: str
    request: Request

    @property
    def on_cpu(self) -> bool:
        """Whether its tensors are on the CPU."""
        return all(tensor.device.type == "cpu" for tensor in self.tensors)

    def networks(self) -> tuple[OwnNetwork, OwnNetwork]:
        """Return the network for any shape, and for the shapes of the call alone."""
        inputs, outputs = self.ports
        fixed = tuple(
            replace(port, lengths=dict(zip(port.axes, tensor.shape, strict=True)))
            for port, tensor in zip(inputs, self.inputs, strict=True)
        )
        return (
            OwnNetwork(self.network, inputs, outputs, "Module"),
            OwnNetwork(self.network, fixed, outputs, "Module"),
        )


def problem_of(
    module: nn.Module,
    caller: Caller,
    parameters: Parameters,
    takes: Structure,
    tensors: Sequence[Tensor],
    call: Callable[[Sequence[Tensor]], Any],
    request: Request,
) -> tuple[Structure, Problem]:
    """Return the structure of what a module returns, and the problem.

    Args:
        module: A copy of the module.
        caller: Calls it.
        parameters: Its parameters.
        takes: The arguments of the call.
        tensors: The tensors of the call.
        call: Calls another copy with other tensors.
        request: What is asked for.

    Raises:
        UnsupportedModelError: No file can compute it, or no file of nystra.
    """
    structures: list[Structure] = []

    def outputs_of(given: Sequence[Tensor]) -> Sequence[Tensor]:
        structure, outputs = Structure.of(call(given))
        structures.append(structure)
        return outputs

    returned = refuse_side_effects(outputs_of, tensors)
    for tensor in (*tensors, *returned):
        if tensor.dtype not in _TAKEN:
            raise UnsupportedModelError(f"a tensor is {tensor.dtype}, expected float32 or half")
    network = plain_copy(OwnNetwork(OfTensors(module, caller, parameters, takes)))
    adapt(network)
    inputs = [tensor.to("cpu", torch.float32) for tensor in tensors]
    refuse_values_read(network, inputs)
    with plain_run():
        expected = network(*(tensor.clone() for tensor in inputs))
    ports = ports_of(inputs, expected)
    problem = Problem(
        network,
        tensors,
        inputs,
        expected,
        returned,
        lambda: call([tensor.clone() for tensor in tensors]),
        ports,
        computed_by(network, ports[0], inputs),
        request,
    )
    return structures[0], problem
