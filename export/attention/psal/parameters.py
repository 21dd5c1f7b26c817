"""The parameters of ``psal``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ....core.option import option
from ....core.option_kinds import Choice, Number, Switch
from ....models.geometry import TokenGeometry, WindowGeometry
from ....plugins.operators.patch_match.schema import SCHEMA
from ....plugins.operators.window_softmax.schema import SCHEMA as WINDOWS
from ..mechanism import Geometry, Windowed
from ..operator_option import operator_option

_SEED = operator_option(SCHEMA, "seed", "random seed of the search")


class _PatchSize(Number):
    @property
    def expected(self) -> str:
        return f"0 (as in the network) or an odd number from {super().limits}"

    @property
    def limits(self) -> str:
        return f"odd, {super().limits}; 0 is the network's"

    def allows(self, value: float) -> bool:
        return value == 0 or (value % 2 == 1 and super().allows(value))


@dataclass(frozen=True)
class Psal(Windowed):
    """Attention to the k nearest patches or tokens that a seeded search finds.

    At map sites it is exact attention in local windows.
    """

    name = "psal"
    site_classes = ("Patches", "Windows", "Tokens", "Maps")
    summary = "PatchMatch attention: the nearest patches or tokens of each query, linear memory"
    has_near_ties = True
    advice = "more `neighbors`"
    candidates = (({}, False),)

    neighbors: int = option(operator_option(SCHEMA, "neighbors", "matches per query"))
    search_iterations: int = option(
        operator_option(SCHEMA, "iterations", "iterations of the search")
    )
    patch_size: int = option(
        operator_option(
            SCHEMA, "patch_size", "side of the patches that are compared", 0, _PatchSize
        )
    )
    metric: str = option(
        Choice(
            "site",
            "similarity of patches; site takes that of the network",
            ("site", "l2", "dot", "cosine"),
        )
    )
    seed: int = option(_SEED)
    temperature: float = option(Number(1.0, "divisor of the logits", 1e-6, 1e6))
    aggregate: bool = option(
        Switch("also use the matches of neighboring pixels, at sites that copy single pixels")
    )
    full_size: bool = option(Switch("search at full resolution and copy single pixels"))
    local_window: int = option(
        operator_option(WINDOWS, "window_h", "side of the local windows at map sites", 32)
    )

    def fits(self, geometry: Geometry) -> str:
        """Return why there is no search in a window of too few tokens, or ""."""
        reason = super().fits(geometry)
        if isinstance(geometry, TokenGeometry) and geometry.before is not None:
            return "psal does not support attention between tokens of any number"
        if reason or not isinstance(geometry, WindowGeometry):
            return reason
        if self.neighbors <= geometry.tokens:
            return ""
        rows, columns = geometry.window
        return f"more neighbors than tokens of the {rows}x{columns} window"

    def reseed(self) -> Psal:
        """Return the same with the next seed."""
        seeds = int(_SEED.maximum) + 1
        return replace(self, seed=(self.seed + 1) % seeds)
