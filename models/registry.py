"""The architectures nystra knows, as data: importing this module imports none of them.

A row a network; the first whose keys are all in the state dict is taken.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ..plugins.errors import UnsupportedModelError

if TYPE_CHECKING:
    from .architecture import Architecture, State


@dataclass(frozen=True)
class Row:
    """One architecture.

    Attributes:
        name: As in ``Facts.architecture``.
        keys: Patterns of keys that its state dicts have: each must match one; ``|`` stands
            between alternatives. Without any, ``Architecture.recognises`` is asked.
        module: Has ``ARCHITECTURE``; imported when the row is taken.
    """

    name: str
    keys: tuple[str, ...]
    module: str

    def architecture(self) -> Architecture:
        """Import what loads this architecture."""
        loaded: Architecture = importlib.import_module(self.module, __package__).ARCHITECTURE
        return loaded

    def matches(self, state: State) -> bool:
        """Tell whether a state dict is of this architecture."""
        if self.keys:
            return not missing(self.keys, state)
        recognises = self.architecture().recognises
        return recognises is not None and recognises(state)


ARCHITECTURES = (
    Row(
        "swinir",
        (
            "conv_first.weight",
            "layers.0.residual_group.blocks.0.attn.qkv.weight",
            "layers.0.residual_group.blocks.0.mlp.fc1.weight",
            "norm.weight",
            "conv_last.weight|upsample.0.weight",
        ),
        ".swinir.checkpoint",
    ),
    Row(
        "csnln",
        (
            "SEM.multi_source_projection.up_attention.conv_match_1.0.weight",
            "SEM.multi_source_projection.down_attention.conv_match1.0.weight",
            "SEM.multi_source_projection.upsample.0.weight",
            "tail.0.weight",
        ),
        ".csnln.checkpoint",
    ),
    Row(
        "contextual_attention",
        (
            "coarse_generator.conv1.conv.weight",
            "coarse_generator.conv10_atrous.conv.weight",
            "fine_generator.pmconv10.conv.weight",
            "fine_generator.allconv17.conv.weight",
        ),
        ".contextual_attention.checkpoint",
    ),
    Row(
        "colorization",
        ("embed.weight", "embed_color.weight", "project.weight"),
        ".colorization.checkpoint",
    ),
)


def missing(patterns: Collection[str], keys: Collection[str]) -> list[str]:
    """Return the patterns that no key matches."""
    return [
        pattern
        for pattern in patterns
        if not any(_present(choice, keys) for choice in pattern.split("|"))
    ]


def _present(pattern: str, keys: Collection[str]) -> bool:
    if "*" not in pattern:
        return pattern in keys
    return any(fnmatchcase(key, pattern) for key in keys)


def row_named(name: str) -> Row:
    """Return the row of an architecture.

    Raises:
        UnsupportedModelError: there is none; the message lists what is known.
    """
    for row in ARCHITECTURES:
        if row.name == name:
            return row
    raise UnsupportedModelError(f"architecture {name!r} is unknown; nystra knows: {_known()}")


def find_architecture(state: State, name: str | None = None) -> Row:
    """Return the row of a state dict, or the one of that name.

    Raises:
        UnsupportedModelError: none matches, or the name is unknown; the message lists what is
            known and the first keys.
    """
    if name is not None:
        return row_named(name)
    for row in ARCHITECTURES:
        if row.matches(state):
            return row
    keys = ", ".join(list(state)[:6])
    raise UnsupportedModelError(
        f"no known architecture has these {len(state)} keys ({keys}, ...); nystra knows: {_known()}"
    )


def _known() -> str:
    return ", ".join(row.name for row in ARCHITECTURES)
