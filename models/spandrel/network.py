"""A network that spandrel built: its ports, how it is called, and the sizes that it takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ...core.ports.port import Port
from ..sizes.borders import Sides
from ..sizes.given import GivenNetwork
from ..sizes.own_padding import own_sides
from ..sizes.padded_network import PaddedNetwork
from ..sizes.plain_run import run_plainly
from ..sizes.trial import Stated, Trial, try_sizes
from .adapters import adapt
from .tracing import traceable


@dataclass(frozen=True)
class TraceableCall:
    """Calls a network as spandrel does, with traceable functions while it is traced.

    Attributes:
        call: Function (network, *inputs) -> the image of its outputs, with values in 0..1.
    """

    call: Callable[..., Tensor]

    def __call__(self, network: nn.Module, *inputs: Tensor) -> Tensor:
        """Return the image (B, C, H, W) of a network for its inputs."""
        with run_plainly(), traceable(network, self.call):
            return self.call(network, *inputs)


@dataclass(frozen=True)
class _StatedCall:
    """Calls a network at the sizes that spandrel states for it: it pads images of others itself.

    Attributes:
        call: (network, inputs) -> output.
        multiple: What the sides are multiples of.
    """

    call: Callable[..., Any]
    multiple: int

    def __call__(self, network: nn.Module, *inputs: Tensor) -> Any:
        """Return what the network returns.

        Raises:
            ValueError: spandrel does not call the network with images of this size.
        """
        if any(side % self.multiple for side in inputs[0].shape[-2:]):
            raise ValueError(f"the sides are no multiples of {self.multiple}")
        with run_plainly():
            return self.call(network, *inputs)


def ports_of(descriptor: Any) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
    """Return the inputs and outputs of a network, without measuring anything."""
    inputs = [Port("input", "image", lengths={"channels": descriptor.input_channels})]
    if descriptor.purpose == "Inpainting":
        inputs.append(Port("mask", "mask", lengths={"channels": 1}))
    channels = {"channels": descriptor.output_channels}
    outputs = (Port("output", "picture", lengths=channels, multiple=descriptor.scale),)
    return tuple(inputs), outputs


def try_spandrel_network(descriptor: Any, source: str) -> Trial:
    """Return the network of a descriptor, with its sites, padded as it needs.

    Args:
        descriptor: Descriptor of spandrel, with the network and its weights.
        source: Name of the file, for messages.

    Raises:
        UnsupportedModelError: The network fails at every size, or does not return an image.
    """
    inputs, outputs = ports_of(descriptor)
    needs = descriptor.size_requirements
    # The descriptor's own call clips and runs in inference mode, where nothing can be traced.
    call = TraceableCall(descriptor._call_fn)
    network = descriptor.model.float().eval()
    stated_call = _StatedCall(descriptor._call_fn, needs.multiple_of)
    given = GivenNetwork(network, stated_call, inputs, outputs)
    adapt(network)
    own = own_sides(network, call, inputs)
    sides = Sides(math.lcm(needs.multiple_of, own.multiple), own.border, minimum=own.minimum)
    return try_sizes(
        PaddedNetwork(network, sides, outputs, call, given),
        Stated(
            inputs,
            needs.minimum,
            square=needs.square,
            source=source,
            by="spandrel",
        ),
    )
