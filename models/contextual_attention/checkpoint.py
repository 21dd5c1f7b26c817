"""Loading the inpainting generator: its hyper-parameters and its facts."""

from __future__ import annotations

from ...core.ports.port import Port
from ..architecture import Architecture, BuiltNetwork, Hyper, PrecisionPolicy, Request, State
from ..checkpoints.construction import construct, merge_hyper, shape_of
from ..facts import Facts
from .network import MULTIPLE, InpaintingGenerator


def load(state: State, request: Request) -> BuiltNetwork:
    """Return the network of a state dict."""
    hyper = merge_hyper(contextual_attention_hyper(state), request)
    network = construct(InpaintingGenerator, hyper, state, request.source)
    return BuiltNetwork(network, contextual_attention_facts(network, hyper, request.license), hyper)


def contextual_attention_hyper(state: State) -> Hyper:
    """Return the constructor arguments, all of which are read from the tensors."""
    width, inputs, *_ = shape_of(state, "coarse_generator.conv1.conv.weight", 4)
    return {"input_dim": inputs - 2, "ngf": width}


def contextual_attention_facts(
    network: InpaintingGenerator, hyper: Hyper, license_name: str
) -> Facts:
    """Return the facts of a network."""
    channels = {"channels": hyper["input_dim"]}
    return Facts(
        architecture="contextual_attention",
        task="inpainting",
        inputs=(
            Port("input", "image", lengths=channels, multiple=MULTIPLE),
            Port("mask", "mask", lengths={"channels": 1}, multiple=MULTIPLE),
        ),
        outputs=(Port("output", "picture", lengths=channels),),
        tiling="internal",
        license=license_name,
    )


ARCHITECTURE = Architecture(load, PrecisionPolicy())
