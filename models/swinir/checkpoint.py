"""Loading SwinIR, at the window it was trained with or another."""

from __future__ import annotations

from ...plugins.errors import CheckpointError
from ...plugins.ports.port import Port, picture_size
from ..architecture import Architecture, Built, Hyper, PrecisionPolicy, Request, State
from ..building import construct, require
from ..facts import Facts
from ..hyper_types import check_types
from ..retarget import POSITION_BIAS, retarget
from .hyper import swinir_hyper
from .network import SwinIR

_REBUILT = (".attn_mask", ".relative_position_index")  # buffers that published files may hold
_FLAGS = {"window_size": "--window", "num_heads": "--heads"}


def load(state: State, request: Request) -> Built:
    """Return the network of a state dict."""
    read = swinir_hyper(state)
    trained = read | dict(request.stored)
    check_types(SwinIR, trained | dict(request.asked), request.source)
    hyper, kept, warning = retarget(trained, request.asked, state, (POSITION_BIAS,))
    if warning and "img_size" not in request.asked:
        hyper.pop("img_size", None)  # it spoke of the trained window
    if list(hyper["depths"]) != read["depths"]:
        raise CheckpointError(
            f"{request.source}: depths {hyper['depths']!s:.80} were given, but its tensors are of "
            f"{read['depths']}"
        )
    require(hyper, request.source, _FLAGS)
    # The published window-7 networks are the JPEG ones, which work on the range 0..255.
    hyper.setdefault("img_range", 255.0 if hyper["window_size"] == 7 else 1.0)
    network = construct(SwinIR, hyper, kept, request.source, _REBUILT)
    facts = swinir_facts(network, hyper, request.license)
    return Built(network, facts, hyper, (warning,) if warning else (), retargeted=bool(warning))


def swinir_facts(network: SwinIR, hyper: Hyper, license_name: str) -> Facts:
    """Return what a built network promises."""
    channels = {"channels": hyper["in_chans"]}
    sides = {} if network.fixed_size is None else picture_size(*network.fixed_size)
    return Facts(
        architecture="swinir",
        task="restoration",
        inputs=(Port("input", "image", lengths=channels | sides, multiple=max(network.window)),),
        outputs=(Port("output", "picture", lengths=channels, multiple=network.upscale),),
        tiling="supported",
        license=license_name,
        window=network.window,
    )


ARCHITECTURE = Architecture(load, PrecisionPolicy())
