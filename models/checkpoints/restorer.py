"""Loading image networks of shifted windows, at the window they were trained with or another."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...core.errors import CheckpointError
from ...core.ports.port import Port, image_size
from ..architecture import BuiltNetwork, Hyper, Request, State
from ..facts import Facts
from ..layers.image_network import ImageNetwork
from .construction import construct, require
from .hyper_types import check_types
from .retarget import POSITION_BIAS, retarget

_REBUILT = (".attn_mask", ".relative_position_index")  # buffers that published files may hold
_NEEDED = ("window_size", "num_heads")


def load_restorer(
    architecture: str,
    build: type[ImageNetwork],
    read: Hyper,
    state: State,
    request: Request,
    ranges: Mapping[int, float] = MappingProxyType({}),
) -> BuiltNetwork:
    """Return a network of windows with the weights of a state dict.

    Args:
        architecture: Its name in the registry.
        build: Its class.
        read: The hyper-parameters that were read from the tensors.
        state: The tensors.
        request: The other inputs of the load.
        ranges: Window -> ``img_range`` of the published networks that have it, where it is not 1.

    Raises:
        CheckpointError: The tensors do not fit.
        NystraError: The hyper-parameters do not.
    """
    trained = read | dict(request.stored)
    check_types(build, trained | dict(request.overrides), request.source)
    hyper, tensors, warning = retarget(trained, request.overrides, state, (POSITION_BIAS,))
    if warning and "img_size" not in request.overrides:
        hyper.pop("img_size", None)  # it was for the trained window
    if list(hyper["depths"]) != read["depths"]:
        raise CheckpointError(
            f"{request.source}: depths {hyper['depths']!s:.80} were given, the tensors have "
            f"{read['depths']}"
        )
    require(hyper, request.source, _NEEDED)
    window = hyper["window_size"]
    hyper.setdefault("img_range", ranges.get(window, 1.0) if isinstance(window, int) else 1.0)
    network = construct(build, hyper, tensors, request.source, _REBUILT)
    facts = restorer_facts(architecture, network, hyper, request.license)
    return BuiltNetwork(
        network, facts, hyper, (warning,) if warning else (), retargeted=bool(warning)
    )


def restorer_facts(
    architecture: str, network: ImageNetwork, hyper: Hyper, license_name: str
) -> Facts:
    """Return the facts of a network."""
    channels = {"channels": hyper["in_chans"]}
    sides = {} if network.fixed_size is None else image_size(*network.fixed_size)
    return Facts(
        architecture=architecture,
        task="restoration",
        inputs=(Port("input", "image", lengths=channels | sides, multiple=max(network.window)),),
        outputs=(Port("output", "picture", lengths=channels, multiple=network.upscale),),
        tiling="supported",
        license=license_name,
        window=network.window,
    )
