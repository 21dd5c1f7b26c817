"""The parameters of ``nystra``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....core.option import option
from ....models.geometry import WindowGeometry
from ....plugins.operators.window_nystrom.schema import SCHEMA
from ..landmarks import Landmarks
from ..operator_option import operator_option


@dataclass(frozen=True)
class Nystra(Landmarks):
    """Kernel Nystrom of PnP-Nystra."""

    name = "nystra"
    summary = "kernel Nystrom of PnP-Nystra: linear, no retraining"

    threshold: float = option(
        operator_option(SCHEMA, "threshold", "exp continues linearly above this value")
    )
    guard: float = option(
        operator_option(
            SCHEMA,
            "guard",
            "replace results whose denominator is below this share of its absolute terms; "
            "0 disables the guard",
        )
    )

    def attributes(self, geometry: WindowGeometry) -> dict[str, Any]:
        """Return the attributes of the window operator."""
        return super().attributes(geometry) | {"threshold": self.threshold, "guard": self.guard}
