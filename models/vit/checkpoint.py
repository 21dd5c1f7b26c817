"""Loads a vision transformer with the keys of the study, of timm or of torchvision."""

from __future__ import annotations

from typing import Any

from ...core.errors import CheckpointError, NystraError, UnsupportedModelError
from ...core.ports.port import LOGITS_AXES, Port, image_size, join_sides
from ...core.ports.preprocessing import Preprocessing
from ..architecture import Architecture, BuiltNetwork, Hyper, Request, State
from ..checkpoints.construction import construct, merge_hyper
from ..checkpoints.hyper_types import check_types
from ..facts import Facts
from ..registry import OTHERWISE
from .hyper import vit_hyper
from .layouts import Layout, join_heads, layout_of
from .network import ViT, grid_of
from .positions import read_trained_grid, resize_positions
from .preprocessing import choose_preprocessing

_POSITIONS = "embedding.position_embeddings"
_REBUILT = (".num_batches_tracked",)  # which no forward pass uses
_MORE_TOKENS = {"dist_token": "a distillation token", "reg_token": "register tokens"}
"""Keys of timm's networks with tokens other than the class token -> their names."""

_NOT_HYPER = ("resize_positions", "preprocessing")  # which are not arguments of the constructor


def load(state: State, request: Request) -> BuiltNetwork:
    """Return the network of a state dict, with resized positions if requested."""
    _refuse_more_tokens(state, request.source)
    layout = layout_of(state)
    tensors, heads = join_heads(layout.canonical(state))
    read = vit_hyper(tensors) | dict(layout.hyper)
    if layout.name == "timm" and "fc_norm.weight" in state:
        read |= {"pool": "mean", "norm": "pooled"}
    overrides = {k: value for k, value in request.overrides.items() if k not in _NOT_HYPER}
    stored = {k: value for k, value in request.stored.items() if k not in _NOT_HYPER}
    hyper = merge_hyper(read, Request(request.source, overrides, stored))
    check_types(ViT, hyper, request.source)
    hyper.setdefault("num_heads", heads or layout.heads.get(hyper["hidden_size"]))
    _require(hyper, layout, request.source)
    trained = _grid(tensors, hyper, request.source)
    hyper["image_size"] = [side * hyper["patch_size"] for side in trained]
    warnings: tuple[str, ...] = ()
    if "resize_positions" in request.overrides:
        grid = _grid_of(request.overrides["resize_positions"], hyper["patch_size"], request.source)
        tensors[_POSITIONS] = resize_positions(tensors[_POSITIONS], trained, grid)
        size = [side * hyper["patch_size"] for side in grid]
        before, after = (join_sides(sides) for sides in (hyper["image_size"], size))
        warnings = (
            (
                f"its positions for {before} pixels are resized to {after}, which changes its "
                "output: measure the accuracy"
            ),
        )
        hyper["image_size"] = size
    network = construct(ViT, hyper, tensors, request.source, _REBUILT)
    prepared, assumed = choose_preprocessing(
        request.overrides.get("preprocessing", request.stored.get("preprocessing")),
        layout,
        network.image_size,
        hyper["num_channels"],
    )
    facts = vit_facts(network, hyper, request.license, prepared)
    return BuiltNetwork(network, facts, hyper, warnings + assumed)


def _refuse_more_tokens(state: State, source: str) -> None:
    for key, what in _MORE_TOKENS.items():
        if key in state:
            raise UnsupportedModelError(
                f"{source}: the network has {what} ({key}), expected a class token only. "
                f"{OTHERWISE}"
            )


def _require(hyper: Hyper, layout: Layout, source: str) -> None:
    needed = {"num_heads": "`num_heads`"}
    if hyper.get("attention") == "nystromformer":
        needed["num_landmarks"] = "`hyper` num_landmarks=N"
    for key, advice in needed.items():
        if hyper.get(key) is None:
            raise NystraError(
                f"{source}: its tensors, with the keys of {layout.name}, do not determine {key}: "
                f"give {advice}"
            )


def _grid(state: State, hyper: Hyper, source: str) -> tuple[int, int]:
    if _POSITIONS not in state or state[_POSITIONS].dim() != 3:
        raise CheckpointError(f"{source}: it has no positions (1, tokens, channels)")
    count = state[_POSITIONS].shape[1] - int(hyper["class_token"])
    size = hyper.get("image_size")
    stated_grid = None if size is None else _grid_of(size, hyper["patch_size"], source)
    return read_trained_grid(count, stated_grid, source)


def _grid_of(size: Any, patch: int, source: str) -> tuple[int, int]:
    check_types(ViT, {"image_size": size}, source)
    try:
        return grid_of(size, patch)
    except ValueError as error:
        raise NystraError(f"{source}: {error}") from error


def vit_facts(network: ViT, hyper: Hyper, license_name: str, preprocessing: Preprocessing) -> Facts:
    """Return the facts of a built network: images of one size, any batch."""
    size = {"channels": hyper["num_channels"]} | image_size(*network.image_size)
    classes = {"classes": hyper["num_classes"]}
    return Facts(
        architecture="vit",
        task="classification",
        inputs=(Port("input", "image", lengths=size),),
        outputs=(Port("logits", "logits", LOGITS_AXES, classes, range=None),),
        tiling="internal",
        license=license_name,
        preprocessing=preprocessing,
    )


ARCHITECTURE = Architecture(load)
