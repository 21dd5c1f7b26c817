"""Loading a vision transformer, of the study's keys, timm's or torchvision's."""

from __future__ import annotations

from typing import Any

from ...plugins.errors import CheckpointError, NystraError
from ...plugins.ports.port import LOGITS_AXES, Port, picture_size
from ..architecture import Architecture, Built, Hyper, Request, State
from ..building import construct, told
from ..facts import Facts
from ..hyper_types import check_types
from .hyper import vit_hyper
from .layouts import Layout, join_heads, layout_of
from .network import ViT, grid_of
from .positions import resize_positions, trained_grid

_POSITIONS = "embedding.position_embeddings"
_REBUILT = (".num_batches_tracked",)  # which no forward pass looks at
_BESIDE = ("resize_positions", "preprocessing")  # which no constructor takes
_FLAGS = {
    "num_heads": "--heads N",
    "num_landmarks": "--set num_landmarks=N",
}


def load(state: State, request: Request) -> Built:
    """Return the network of a state dict, its positions resized where that is asked for."""
    layout = layout_of(state)
    tensors, heads = join_heads(layout.canonical(state))
    stored = {key: value for key, value in request.stored.items() if key not in _BESIDE}
    read = vit_hyper(tensors) | dict(layout.hyper)
    if layout.name == "timm" and "fc_norm.weight" in state:
        read |= {"pool": "mean", "norm": "pooled"}
    wanted = request.asked.get("resize_positions")
    asked = {key: value for key, value in request.asked.items() if key not in _BESIDE}
    hyper = told(read, Request(request.source, asked, stored))
    hyper.setdefault("num_heads", heads or layout.heads.get(hyper["hidden_size"]))
    check_types(ViT, {**hyper, "num_heads": hyper["num_heads"] or 1}, request.source)
    _require(hyper, layout, request.source)
    trained = _grid(tensors, hyper, request.source)
    hyper["image_size"] = [side * hyper["patch_size"] for side in trained]
    warnings: tuple[str, ...] = ()
    if wanted is not None:
        grid = _wanted_grid(wanted, hyper["patch_size"], request.source)
        tensors[_POSITIONS] = resize_positions(tensors[_POSITIONS], trained, grid)
        before = "x".join(map(str, hyper["image_size"]))
        hyper["image_size"] = [side * hyper["patch_size"] for side in grid]
        after = "x".join(map(str, hyper["image_size"]))
        warnings = (f"positions for {before} pixels are resized to {after}: measure it",)
    network = construct(ViT, hyper, tensors, request.source, _REBUILT)
    return Built(network, vit_facts(network, hyper, request.license), hyper, warnings)


def _require(hyper: Hyper, layout: Layout, source: str) -> None:
    """Raise NystraError where a hyper-parameter that no tensor tells was not given."""
    needed = ["num_heads"]
    if hyper.get("attention") == "nystromformer":
        needed.append("num_landmarks")
    for key in needed:
        if hyper.get(key) is None:
            raise NystraError(
                f"{source}: its tensors, with the keys of {layout.name}, do not tell {key}; give "
                f"{_FLAGS[key]}"
            )


def _grid(state: State, hyper: Hyper, source: str) -> tuple[int, int]:
    """Return rows and columns of the positions in a state dict."""
    if _POSITIONS not in state or state[_POSITIONS].dim() != 3:
        raise CheckpointError(f"{source}: it has no positions (1, tokens, channels)")
    count = state[_POSITIONS].shape[1] - int(hyper["class_token"])
    size = hyper.get("image_size")
    told_grid = None if size is None else _wanted_grid(size, hyper["patch_size"], source)
    return trained_grid(count, told_grid, source)


def _wanted_grid(size: Any, patch: int, source: str) -> tuple[int, int]:
    check_types(ViT, {"image_size": size}, source)
    try:
        return grid_of(size, patch)
    except ValueError as error:
        raise NystraError(f"{source}: {error}") from error


def vit_facts(network: ViT, hyper: Hyper, license_name: str) -> Facts:
    """Return what a built network promises: pictures of one size, any number of them."""
    size = {"channels": hyper["num_channels"]} | picture_size(*network.image_size)
    classes = {"classes": hyper["num_classes"]}
    return Facts(
        architecture="vit",
        task="classification",
        inputs=(Port("input", "image", lengths=size),),
        outputs=(Port("logits", "logits", LOGITS_AXES, classes, range=None),),
        tiling="internal",
        license=license_name,
    )


ARCHITECTURE = Architecture(load)
