"""Recognising the colourisation network, its hyper-parameters and its facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..facts import ExtraInput, Facts
from .network import Colorization


def is_colorization(state: Mapping[str, Tensor]) -> bool:
    """Tell whether a state dict is the colourisation network's."""
    return {"embed.weight", "embed_color.weight", "project.weight"} <= state.keys()


def colorization_hyper(state: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return what the tensors tell; patch, metric and scale stand in the file's metadata."""
    return {"channels": state["embed.weight"].shape[0]}


def colorization_facts(network: Colorization, hyper: dict[str, Any], license_name: str) -> Facts:
    """Return what a built network promises."""
    return Facts(
        architecture="colorization",
        task="colorization",
        scale=1,
        input_channels=1,
        output_channels=3,
        range=(0.0, 1.0),
        window=None,
        size_multiple=1,
        size_minimum=1,
        tiling="internal",
        precision="fp32",
        license=license_name,
        extra_inputs=(ExtraInput("reference", "reference", 3, same_size=False),),
    )
