"""Loading CSNLN: its hyper-parameters and its facts."""

from __future__ import annotations

from ...core.errors import UnsupportedModelError
from ...core.ports.port import Port
from ..architecture import Architecture, BuiltNetwork, Hyper, PrecisionPolicy, Request, State
from ..checkpoints.construction import construct, merge_hyper, shape_of
from ..facts import Facts
from .network import CSNLN, MEAN

_FACTOR_OF_KERNEL = {6: 2, 9: 3}


def load(state: State, request: Request) -> BuiltNetwork:
    """Return the network of a state dict."""
    hyper = {"rgb_range": 1.0} | merge_hyper(csnln_hyper(state), request)
    network = construct(CSNLN, hyper, state, request.source, optional_keys=(".escape_NaN",))
    return BuiltNetwork(network, csnln_facts(network, hyper, request.license), hyper)


def csnln_hyper(state: State) -> Hyper:
    """Return the constructor arguments, all of which are read from the tensors.

    ``rgb_range`` is derived from the mean color, and omitted if no mean is subtracted.

    Raises:
        UnsupportedModelError: The enlarging convolution is of no published scale.
    """
    kernel = shape_of(state, "SEM.multi_source_projection.upsample.0.weight", 4)[-1]
    if kernel not in _FACTOR_OF_KERNEL:
        raise UnsupportedModelError(
            f"unknown CSNLN with an upscaling convolution of size {kernel}: expected 6 (x2 and "
            "x4) or 9 (x3)"
        )
    twice = "SEM.multi_source_projection_2.upsample.0.weight" in state
    colors, joined, *_ = shape_of(state, "tail.0.weight", 4)
    width = shape_of(state, "head.0.0.weight", 4)[0]
    hyper: Hyper = {
        "scale": 4 if twice else _FACTOR_OF_KERNEL[kernel],
        "n_feats": width,
        "depth": joined // width,
        "n_colors": colors,
    }
    mean = 0.0
    if "sub_mean.bias" in state:
        shape_of(state, "sub_mean.bias", 1)
        mean = -float(state["sub_mean.bias"][0].real)
    return hyper | ({"rgb_range": round(mean / MEAN[0], 4)} if colors == 3 and mean > 0 else {})


def csnln_facts(network: CSNLN, hyper: Hyper, license_name: str) -> Facts:
    """Return the facts of a network."""
    channels = {"channels": hyper["n_colors"]}
    return Facts(
        architecture="csnln",
        task="restoration",
        inputs=(Port("input", "image", lengths=channels, multiple=network.multiple),),
        outputs=(Port("output", "picture", lengths=channels, multiple=network.scale),),
        tiling="supported",
        license=license_name,
    )


ARCHITECTURE = Architecture(load, PrecisionPolicy())
