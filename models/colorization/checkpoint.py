"""Loading the colorization network: its hyper-parameters and its facts."""

from __future__ import annotations

from ...core.ports.port import Port
from ..architecture import Architecture, BuiltNetwork, Hyper, PrecisionPolicy, Request, State
from ..checkpoints.construction import construct, merge_hyper, shape_of
from ..facts import Facts
from .network import Colorization


def load(state: State, request: Request) -> BuiltNetwork:
    """Return the network of a state dict."""
    hyper = merge_hyper(colorization_hyper(state), request)
    network = construct(Colorization, hyper, state, request.source)
    return BuiltNetwork(network, colorization_facts(network, hyper, request.license), hyper)


def colorization_hyper(state: State) -> Hyper:
    """Read hyper-parameters from the tensors; patch, metric and scale are in the metadata."""
    return {
        "channels": shape_of(state, "embed.weight", 4)[0],
        "shared": "embed_key.weight" not in state,
    }


def colorization_facts(network: Colorization, hyper: Hyper, license_name: str) -> Facts:
    """Return the facts of a network."""
    return Facts(
        architecture="colorization",
        task="colorization",
        inputs=(
            Port("input", "image", lengths={"channels": 1}),
            Port("reference", "reference", lengths={"channels": 3}, own_size=True),
        ),
        outputs=(Port("output", "picture", lengths={"channels": 3}),),
        tiling="internal",
        license=license_name,
    )


ARCHITECTURE = Architecture(load, PrecisionPolicy())
