"""The mechanism ``linformer``: all its tensors are trained, so that it has no parameters."""

from __future__ import annotations

from dataclasses import dataclass

from ..mechanism import Mechanism


@dataclass(frozen=True)
class Linformer(Mechanism):
    """Keys and values projected to few tokens by trained matrices (Wang et al., 2020)."""

    name = "linformer"
    site_classes = ("Tokens",)
    summary = "trained projections of keys and values: linear, for networks trained with it"
    keeps_bias = False
    trained = ("E_K", "E_V")
