"""Recognising the inpainting generator, its hyper-parameters and its facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..facts import ExtraInput, Facts
from .network import MULTIPLE, InpaintingGenerator

_FIRST = "coarse_generator.conv1.conv.weight"


def is_contextual_attention(state: Mapping[str, Tensor]) -> bool:
    """Tell whether a state dict is the generator's."""
    return {
        _FIRST,
        "coarse_generator.conv10_atrous.conv.weight",
        "fine_generator.pmconv10.conv.weight",
        "fine_generator.allconv17.conv.weight",
    } <= state.keys()


def contextual_attention_hyper(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the constructor arguments: the tensors tell all of them."""
    width, inputs = state[_FIRST].shape[:2]
    return {"input_dim": inputs - 2, "ngf": width}


def contextual_attention_facts(
    network: InpaintingGenerator, hyper: dict[str, Any], license_name: str
) -> Facts:
    """Return what a built network promises."""
    return Facts(
        architecture="contextual_attention",
        task="inpainting",
        scale=1,
        input_channels=hyper["input_dim"],
        output_channels=hyper["input_dim"],
        range=(0.0, 1.0),
        window=None,
        size_multiple=MULTIPLE,
        size_minimum=1,
        tiling="internal",
        precision="fp32",
        license=license_name,
        extra_inputs=(ExtraInput("mask", "mask", 1),),
    )
