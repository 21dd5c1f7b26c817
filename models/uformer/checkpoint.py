"""Loading Uformer, at the window it was trained with or another."""

from __future__ import annotations

from ...core.errors import CheckpointError
from ...core.ports.port import Port
from ..architecture import Architecture, BuiltNetwork, Hyper, PrecisionPolicy, Request, State
from ..checkpoints.construction import construct, require
from ..checkpoints.hyper_types import check_types
from ..checkpoints.retarget import POSITION_BIAS, WindowPart, retarget
from ..facts import Facts
from .hyper import uformer_hyper
from .network import Uformer

_PARTS = (POSITION_BIAS, WindowPart("modulator", ".modulator.weight", "modulator"))
_REBUILT = (".relative_position_index",)  # a buffer that published files hold
_NEEDED = ("window_size", "num_heads")


def load(state: State, request: Request) -> BuiltNetwork:
    """Return the network of a state dict."""
    read = uformer_hyper(state)
    trained = read | dict(request.stored)
    check_types(Uformer, trained | dict(request.overrides), request.source)
    hyper, tensors, dropped = retarget(trained, request.overrides, state, _PARTS)
    if list(hyper["depths"]) != read["depths"]:
        raise CheckpointError(
            f"{request.source}: depths {hyper['depths']!s:.80} were given, the tensors have "
            f"{read['depths']}"
        )
    require(hyper, request.source, _NEEDED)
    assumed = _assume_size(hyper, read)
    network = construct(Uformer, hyper, tensors, request.source, _REBUILT)
    warnings = tuple(text for text in (dropped, assumed) if text)
    facts = uformer_facts(network, hyper, request.license)
    return BuiltNetwork(network, facts, hyper, warnings, retargeted=bool(dropped))


def _assume_size(hyper: Hyper, read: Hyper) -> str:
    """Set the training size if it is unknown; return a warning if it matters.

    A file whose stages all have one window was trained on 16 windows a side or more: the
    published networks on 16 (128 pixels, denoising) or 32 (256 pixels, deblurring).
    """
    if "img_size" in hyper:
        return ""
    hyper["img_size"] = size = 16 * read["window_size"] if "num_heads" in read else 128
    if read["depths"][4] == 1 or not hyper.get("shift_flag", True):
        return ""
    return (
        f"img_size is not in the file: using {size}, the crop size of denoising networks. A "
        "larger one shifts the windows of the bottleneck: for a network trained on crops of "
        f"{2 * size} (deblurring) give `hyper` img_size={2 * size}"
    )


def uformer_facts(network: Uformer, hyper: Hyper, license_name: str) -> Facts:
    """Return the facts of a built network."""
    return Facts(
        architecture="uformer",
        task="restoration",
        inputs=(
            Port(
                "input",
                "image",
                lengths={"channels": hyper["dd_in"]},
                multiple=max(network.multiple),
            ),
        ),
        outputs=(Port("output", "picture", lengths={"channels": hyper["in_chans"]}),),
        tiling="supported",
        license=license_name,
        window=network.window,
    )


ARCHITECTURE = Architecture(load, PrecisionPolicy(), retargets=True)
