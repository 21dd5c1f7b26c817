"""Loading what spandrel reads: the network by way of its descriptor, the facts from it."""

from __future__ import annotations

import math
from typing import Any

from ...core.errors import CheckpointError, NystraError
from ...core.ports.port import Port
from ..architecture import Architecture, BuiltNetwork, PrecisionPolicy, Request, State
from ..facts import Facts
from .adapters import adapt
from .library import MORE, Reading, find_reading, read, recognises
from .network import ForeignNetwork
from .sides import Sides, own_sides
from .trial import Trial, tried


def load(state: State, request: Request) -> BuiltNetwork:
    """Return the network of a state dict, padded and cropped as its descriptor says."""
    if request.overrides:
        raise NystraError(
            f"{request.source}: spandrel reads all hyper-parameters off the tensors; "
            f"{', '.join(request.overrides)} cannot be given"
        )
    reading = find_reading(state)
    if reading is None:
        raise CheckpointError(f"{request.source}: no architecture of spandrel takes its keys")
    descriptor = read(reading, state, request.source)
    channels = [descriptor.input_channels]
    if descriptor.purpose == "Inpainting":
        channels.append(1)
    needs = descriptor.size_requirements
    # The descriptor's own call clips and runs in inference mode, where nothing can be traced.
    call = descriptor._call_fn
    network = descriptor.model.float().eval()
    adapt(network)
    own = own_sides(network, call, channels)
    stated = Sides(math.lcm(needs.multiple_of, own.multiple), own.border)
    trial = tried(
        ForeignNetwork(network, call, stated, descriptor.scale),
        channels,
        descriptor.output_channels,
        needs.minimum,
        square=needs.square,
        source=request.source,
    )
    facts = _facts(reading, descriptor, request, trial)
    hyper = {"spandrel": reading.name, "tags": list(descriptor.tags)}
    warnings = (*_licence(reading), *trial.warnings)
    return BuiltNetwork(trial.network, facts, hyper, warnings)


def _facts(reading: Reading, descriptor: Any, request: Request, trial: Trial) -> Facts:
    masked = descriptor.purpose == "Inpainting"
    fixed = {"batch": 1} if trial.single else {}
    if trial.fixed is not None:
        fixed |= dict(zip(("height", "width"), trial.fixed, strict=True))

    def port(name: str, channels: int) -> Port:
        lengths = {"channels": channels, **fixed}
        role = "mask" if name == "mask" else "image"
        return Port(name, role, lengths=lengths, multiple=trial.network.sides.multiple)

    return Facts(
        architecture=f"spandrel:{reading.name}",
        task="inpainting" if masked else "restoration",
        inputs=(
            port("input", descriptor.input_channels),
            *([port("mask", 1)] if masked else []),
        ),
        outputs=(
            Port(
                "output",
                "picture",
                lengths={"channels": descriptor.output_channels},
                multiple=descriptor.scale,
            ),
        ),
        size_minimum=trial.minimum,
        tiling=descriptor.tiling.name.lower(),
        license=request.license,
    )


def _licence(reading: Reading) -> tuple[str, ...]:
    """Return what the licence of the code forbids."""
    if not reading.restricted:
        return ()
    text = (
        f"the code of {reading.name} is of {MORE}, whose licences restrict its use, most of "
        "them to what is not commercial: read that of the architecture"
    )
    return (text,)


ARCHITECTURE = Architecture(load, PrecisionPolicy(), recognises)
