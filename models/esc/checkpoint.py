"""Loading ESC and its variants."""

from __future__ import annotations

from ...core.errors import NystraError
from ...core.ports.port import Port
from ..architecture import Architecture, BuiltNetwork, Request, State
from ..checkpoints.construction import construct, merge_hyper, require
from ..facts import Facts
from .hyper import esc_hyper, variant
from .network import EscNetwork

_OPTIONAL = (".MetaUpsample",)  # a buffer of ESC-RealM: it names the upsampler


def load(state: State, request: Request) -> BuiltNetwork:
    """Return the network of a state dict."""
    build = variant(state)
    hyper = merge_hyper(esc_hyper(state, build), request)
    if hyper.get("window_size") is None:
        raise NystraError(
            f"{request.source}: the window of ESC-RIB cannot be read from its tensors: give "
            "`window_size`, 64 for the published networks"
        )
    require(hyper, request.source, ("num_heads",))
    network = construct(build, hyper, state, request.source, optional_keys=_OPTIONAL)
    return BuiltNetwork(network, esc_facts(network, request.license), hyper)


def esc_facts(network: EscNetwork, license_name: str) -> Facts:
    """Return the facts of a network."""
    channels = {"channels": 3}
    return Facts(
        architecture="esc",
        task="restoration",
        inputs=(Port("input", "image", lengths=channels, multiple=max(network.window)),),
        outputs=(Port("output", "picture", lengths=channels, multiple=network.scale),),
        tiling="discouraged",
        license=license_name,
        window=network.window,
    )


ARCHITECTURE = Architecture(load)
