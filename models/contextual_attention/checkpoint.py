"""Loading the inpainting generator: its hyper-parameters and its facts."""

from __future__ import annotations

from ..architecture import Architecture, Built, Hyper, PrecisionPolicy, Request, State
from ..building import construct, shape_of, told
from ..facts import ExtraInput, Facts
from .network import MULTIPLE, InpaintingGenerator


def load(state: State, request: Request) -> Built:
    """Return the network of a state dict."""
    hyper = told(contextual_attention_hyper(state), request)
    network = construct(InpaintingGenerator, hyper, state, request.source)
    return Built(network, contextual_attention_facts(network, hyper, request.license), hyper)


def contextual_attention_hyper(state: State) -> Hyper:
    """Return the constructor arguments: the tensors tell all of them."""
    width, inputs, *_ = shape_of(state, "coarse_generator.conv1.conv.weight", 4)
    return {"input_dim": inputs - 2, "ngf": width}


def contextual_attention_facts(
    network: InpaintingGenerator, hyper: Hyper, license_name: str
) -> Facts:
    """Return what a built network promises."""
    return Facts(
        architecture="contextual_attention",
        task="inpainting",
        scale=1,
        input_channels=hyper["input_dim"],
        output_channels=hyper["input_dim"],
        range=(0.0, 1.0),
        window=None,
        size_multiple=MULTIPLE,
        size_minimum=1,
        tiling="internal",
        license=license_name,
        extra_inputs=(ExtraInput("mask", "mask", 1),),
    )


ARCHITECTURE = Architecture(load, PrecisionPolicy())
