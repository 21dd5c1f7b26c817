"""Loads networks with spandrel: the network and its facts from its descriptor."""

from __future__ import annotations

from typing import Any

from ...core.errors import CheckpointError, NystraError
from ..architecture import Architecture, BuiltNetwork, PrecisionPolicy, Request, State
from ..facts import Facts
from ..registry import MORE
from ..sizes.trial import Trial
from .hugging_face import is_of_transformers, of_spandrel
from .library import Reading, find_reading, is_installed, read
from .network import ports_of, try_spandrel_network


def load(state: State, request: Request) -> BuiltNetwork:
    """Return the network of a state dict, padded and cropped as its descriptor says.

    Raises:
        NystraError: The request overrides hyperparameters.
        CheckpointError: No architecture of spandrel has the keys, or a key has too large an index.
        UnsupportedModelError: spandrel refuses the tensors, or the network returns no image.
    """
    differences: tuple[str, ...] = ()
    if is_of_transformers(state):
        state, request, differences = of_spandrel(state, request)
    if request.overrides:
        raise NystraError(
            f"{request.source}: spandrel reads all hyper-parameters from the tensors, so "
            f"{', '.join(request.overrides)} does not apply: omit it"
        )
    reading = find_reading(state)
    if reading is None:
        raise CheckpointError(f"{request.source}: no architecture of spandrel has its keys")
    descriptor = read(reading, state, request.source)
    trial = try_spandrel_network(descriptor, request.source)
    facts = _facts(reading, descriptor, request, trial)
    hyper = {"spandrel": reading.name, "tags": list(descriptor.tags)}
    warnings = (*_licence(reading), *differences, *trial.warnings)
    return BuiltNetwork(trial.network, facts, hyper, warnings)


def _facts(reading: Reading, descriptor: Any, request: Request, trial: Trial) -> Facts:
    inputs, outputs = ports_of(descriptor)
    return Facts(
        architecture=f"spandrel:{reading.name}",
        task="restoration" if len(inputs) == 1 else "inpainting",
        inputs=trial.measure_inputs(inputs),
        outputs=outputs,
        size_minimum=trial.minimum,
        tiling=descriptor.tiling.name.lower(),
        license=request.license,
    )


def _licence(reading: Reading) -> tuple[str, ...]:
    if not reading.restricted:
        return ()
    text = (
        f"the code of {reading.name} comes from {MORE}, whose licenses restrict its use, mostly "
        "to non-commercial use: read the license of the architecture"
    )
    return (text,)


def recognizes(state: State) -> bool:
    """Return whether spandrel is installed and reads a state dict, or its form in transformers."""
    if is_of_transformers(state):
        return is_installed()
    return find_reading(state) is not None


ARCHITECTURE = Architecture(load, PrecisionPolicy(), recognizes)
