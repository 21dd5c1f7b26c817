"""Loading RVRT, at the window it was trained with or another, for a number of frames."""

from __future__ import annotations

from ...core.errors import NystraError
from ...core.ports.port import AXES, FRAMES_AXES, Port
from ..architecture import Architecture, BuiltNetwork, Hyper, PrecisionPolicy, Request, State
from ..checkpoints.construction import construct, require
from ..checkpoints.hyper_types import check_types
from ..checkpoints.retarget import POSITION_BIAS, retarget
from ..facts import Facts
from .hyper import rvrt_hyper
from .network import RVRT
from .propagation import CLIP

FRAMES = 6
"""Default number of frames of a file."""

_SMALLEST_SIDE = (
    5  # pixels per side: a quarter of less is one pixel, which a traced graph cannot hold
)
_REBUILT = (".relative_position_index",)  # buffers that published files hold
_NEEDED = ("window_size", "num_heads")


def load(state: State, request: Request) -> BuiltNetwork:
    """Return the network of a state dict."""
    stored, overrides = dict(request.stored), dict(request.overrides)
    frames = _frames(overrides.pop("frames", stored.pop("frames", FRAMES)), request.source)
    trained = rvrt_hyper(state) | stored
    check_types(RVRT, trained | overrides, request.source)
    trained, overrides = _with_frames(trained), _with_frames(overrides)
    hyper, tensors, warning = retarget(trained, overrides, state, (POSITION_BIAS,))
    require(hyper, request.source, _NEEDED)
    network = construct(RVRT, hyper, tensors, request.source, _REBUILT)
    facts = rvrt_facts(network, hyper["in_chans"], frames, request.license)
    hyper = hyper | {"frames": frames}
    return BuiltNetwork(
        network, facts, hyper, (warning,) if warning else (), retargeted=bool(warning)
    )


def _with_frames(hyper: Hyper) -> Hyper:
    side = hyper.get("window_size")
    return hyper | {"window_size": [CLIP, side, side]} if isinstance(side, int) else hyper


def rvrt_facts(network: RVRT, channels: int, frames: int, license_name: str) -> Facts:
    """Return the facts of a built network for a number of frames."""
    clip, restored = ({"frames": frames, "channels": count} for count in (channels, 3))
    return Facts(
        architecture="rvrt",
        task="video",
        inputs=(Port("input", "frames", FRAMES_AXES, clip, multiple=network.multiple),),
        outputs=(Port("output", "frames", FRAMES_AXES, restored, multiple=network.upscale),),
        size_minimum=_SMALLEST_SIDE if network.upscale == 1 else 1,
        tiling="supported",
        license=license_name,
        window=network.window,
    )


def _frames(count: object, source: str) -> int:
    maximum = AXES["frames"].largest
    clips = range(CLIP, maximum + 1, CLIP)
    if isinstance(count, int) and not isinstance(count, bool) and count in clips:
        return count
    raise NystraError(
        f"{source}: frames is {count!r:.80}; RVRT takes clips of {CLIP} frames: give an even "
        f"number of at most {maximum}, such as `frames` 6"
    )


_PLACES = "sampling positions depend on it at fractions of a pixel"

ARCHITECTURE = Architecture(
    load,
    PrecisionPolicy(
        modules={"spynet.*": _PLACES, "deform_align.*.conv_offset.*": _PLACES},
        refused={"int8": "its calibration would need videos, and `calibrate` takes images"},
    ),
    retargets=True,
)
