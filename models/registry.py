"""The architectures nystra knows: how to recognise, parametrise and build each.

A row a network; the first whose ``matches`` accepts the state dict is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..plugins.errors import UnsupportedModelError
from .colorization.checkpoint import colorization_facts, colorization_hyper, is_colorization
from .colorization.network import Colorization
from .contextual_attention.checkpoint import (
    contextual_attention_facts,
    contextual_attention_hyper,
    is_contextual_attention,
)
from .contextual_attention.network import InpaintingGenerator
from .csnln.checkpoint import csnln_facts, csnln_hyper, is_csnln
from .csnln.network import CSNLN
from .facts import Facts
from .swinir.checkpoint import is_swinir, swinir_hyper
from .swinir.network import SwinIR

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Architecture:
    """One row of the registry.

    Attributes:
        name: as in ``Facts.architecture``.
        matches: tells whether a state dict is of this architecture.
        hyper: reads hyper-parameters off a state dict.
        build: constructs the network.
        facts: what the built network promises, given its hyper-parameters and licence.
        defaults: documented values for what a state dict cannot tell, from what it told.
        required: hyper-parameters without a default, each with the flag that gives it.
        optional_keys: endings of keys that may be present or absent: buffers rebuilt here.
    """

    name: str
    matches: Callable[[State], bool]
    hyper: Callable[[State], dict[str, Any]]
    build: Callable[..., nn.Module]
    facts: Callable[[Any, dict[str, Any], str], Facts]
    defaults: Callable[[dict[str, Any]], dict[str, Any]] = lambda _: {}
    required: Mapping[str, str] = field(default_factory=dict)
    optional_keys: tuple[str, ...] = ()


def _swinir_defaults(hyper: dict[str, Any]) -> dict[str, Any]:
    # The published window-7 networks are the JPEG ones, which work on the range 0..255.
    return {"img_range": 255.0 if hyper.get("window_size") == 7 else 1.0}


def _swinir_facts(network: SwinIR, hyper: dict[str, Any], license_name: str) -> Facts:
    return Facts(
        architecture="swinir",
        task="restoration",
        scale=network.upscale,
        input_channels=hyper["in_chans"],
        output_channels=hyper["in_chans"],
        range=(0.0, 1.0),
        window=network.window,
        size_multiple=max(network.window),
        size_minimum=1,
        tiling="supported",
        precision="fp16",
        license=license_name,
        fixed_size=network.fixed_size,
    )


ARCHITECTURES = (
    Architecture(
        name="swinir",
        matches=is_swinir,
        hyper=swinir_hyper,
        build=SwinIR,
        facts=_swinir_facts,
        defaults=_swinir_defaults,
        required={"window_size": "--window", "num_heads": "--heads"},
        optional_keys=(".attn_mask", ".relative_position_index"),
    ),
    Architecture(
        name="csnln",
        matches=is_csnln,
        hyper=csnln_hyper,
        build=CSNLN,
        facts=csnln_facts,
        defaults=lambda _: {"rgb_range": 1.0},
        optional_keys=(".escape_NaN",),
    ),
    Architecture(
        name="contextual_attention",
        matches=is_contextual_attention,
        hyper=contextual_attention_hyper,
        build=InpaintingGenerator,
        facts=contextual_attention_facts,
    ),
    Architecture(
        name="colorization",
        matches=is_colorization,
        hyper=colorization_hyper,
        build=Colorization,
        facts=colorization_facts,
    ),
)


def find_architecture(state: State, name: str | None = None) -> Architecture:
    """Return the architecture of a state dict, or the one of that name.

    Raises:
        UnsupportedModelError: none matches, or the name is unknown; the message lists what is
            known and the first keys.
    """
    known = ", ".join(row.name for row in ARCHITECTURES)
    for row in ARCHITECTURES:
        if row.name == name or (name is None and row.matches(state)):
            return row
    if name is not None:
        raise UnsupportedModelError(f"architecture {name!r} is unknown; nystra knows: {known}")
    keys = ", ".join(list(state)[:6])
    raise UnsupportedModelError(
        f"no known architecture has these {len(state)} keys ({keys}, ...); nystra knows: {known}"
    )
