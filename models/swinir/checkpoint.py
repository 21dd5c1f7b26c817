"""Loading SwinIR."""

from __future__ import annotations

from ..architecture import Architecture, BuiltNetwork, PrecisionPolicy, Request, State
from ..checkpoints.restorer import load_restorer
from .hyper import swinir_hyper
from .network import SwinIR


def load(state: State, request: Request) -> BuiltNetwork:
    """Return the network of a state dict."""
    # The published window-7 networks are the JPEG ones, which work on the range 0..255.
    return load_restorer("swinir", SwinIR, swinir_hyper(state), state, request, {7: 255.0})


ARCHITECTURE = Architecture(load, PrecisionPolicy(), retargets=True)
