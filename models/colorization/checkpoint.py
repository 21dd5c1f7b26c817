"""Loading the colourisation network: its hyper-parameters and its facts."""

from __future__ import annotations

from ..architecture import Architecture, Built, Hyper, PrecisionPolicy, Request, State
from ..building import construct, shape_of, told
from ..facts import ExtraInput, Facts
from .network import Colorization


def load(state: State, request: Request) -> Built:
    """Return the network of a state dict."""
    hyper = told(colorization_hyper(state), request)
    network = construct(Colorization, hyper, state, request.source)
    return Built(network, colorization_facts(network, hyper, request.license), hyper)


def colorization_hyper(state: State) -> Hyper:
    """Return what the tensors tell; patch, metric and scale stand in the file's metadata."""
    return {"channels": shape_of(state, "embed.weight", 4)[0]}


def colorization_facts(network: Colorization, hyper: Hyper, license_name: str) -> Facts:
    """Return what a built network promises."""
    return Facts(
        architecture="colorization",
        task="colorization",
        scale=1,
        input_channels=1,
        output_channels=3,
        range=(0.0, 1.0),
        window=None,
        size_multiple=1,
        size_minimum=1,
        tiling="internal",
        license=license_name,
        extra_inputs=(ExtraInput("reference", "reference", 3, same_size=False),),
    )


ARCHITECTURE = Architecture(load, PrecisionPolicy())
