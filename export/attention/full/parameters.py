"""The parameters of ``full``."""

from __future__ import annotations

from dataclasses import dataclass

from ....models.geometry import WindowGeometry
from ..mechanism import Geometry, Mechanism, Windowed


@dataclass(frozen=True)
class Full(Windowed):
    """Exact softmax attention."""

    name = "full"
    site_classes = ("Windows", "Overlaps", "Tokens", "Patches")
    summary = "exact softmax attention"

    def fits(self, geometry: Geometry) -> str:
        """Return "": exact attention is defined at every site, whatever its window."""
        return ""

    def choose_mask(self, geometry: WindowGeometry) -> int:
        """Return the ``mask`` attribute of operators of exact attention: 2 hides at any score."""
        return super().choose_mask(geometry) and geometry.exact_mask

    @classmethod
    def instead_of(cls, other: Mechanism, reason: str = "") -> Full:
        """Return exact attention with the mask of another mechanism."""
        return cls(mask=getattr(other, "mask", "regions"), reason=reason)
