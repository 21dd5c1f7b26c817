"""The parameters of ``nystromformer``."""

from __future__ import annotations

from dataclasses import dataclass

from ..landmarks import Landmarks


@dataclass(frozen=True)
class Nystromformer(Landmarks):
    """Row-normalized Nystrom of Nystromformer."""

    name = "nystromformer"
    site_classes = ("Windows", "Tokens")
    summary = "row-normalized Nystrom of Nystromformer: linear, no retraining"
