"""Loading SST."""

from __future__ import annotations

from ...core.ports.port import Port
from ..architecture import Architecture, BuiltNetwork, Hyper, Request, State
from ..checkpoints.construction import construct, merge_hyper, require
from ..checkpoints.hyper_types import check_types
from ..facts import Facts
from .hyper import require_windows, sst_hyper
from .network import SST


def load(state: State, request: Request) -> BuiltNetwork:
    """Return the network of a state dict."""
    hyper = merge_hyper(sst_hyper(state), request)
    check_types(SST, hyper, request.source)
    require_windows(hyper, request.source)
    require(hyper, request.source, ("num_heads", "upscaling_factor"))
    network = construct(SST, hyper, state, request.source)
    return BuiltNetwork(network, sst_facts(network, hyper, request.license), hyper)


def sst_facts(network: SST, hyper: Hyper, license_name: str) -> Facts:
    """Return the facts of a built network."""
    windows = set(hyper["window_sizes"])
    side = windows.pop() if len(windows) == 1 else None
    return Facts(
        architecture="sst",
        task="restoration",
        inputs=(Port("input", "image", lengths={"channels": 3}, multiple=network.multiple),),
        outputs=(Port("output", "picture", lengths={"channels": 3}, multiple=network.scale),),
        tiling="supported",
        license=license_name,
        window=None if side is None else (side, side),
    )


ARCHITECTURE = Architecture(load)
