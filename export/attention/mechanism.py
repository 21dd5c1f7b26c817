"""What is computed at a site: the parameters, and the table of mechanisms.

Adding a mechanism: a file beside this one, a row in ``MECHANISMS``, its parameters below. The
file holds a class for each kind of site it serves, named as in ``_CLASSES``.
"""

from __future__ import annotations

import importlib
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

from ...models.geometry import WindowGeometry
from ...models.sites import (
    MapMechanism,
    MapSite,
    PatchMechanism,
    PatchSite,
    TokenMechanism,
    TokenSite,
    WindowMechanism,
    WindowSite,
)
from ...plugins.errors import NystraError
from ...plugins.operators.window_schema import cuts_a_cell

Form = Literal["plain", "operator"]
AnySite: TypeAlias = WindowSite | TokenSite | PatchSite | MapSite
AnyMechanism: TypeAlias = WindowMechanism | TokenMechanism | PatchMechanism | MapMechanism

_CLASSES: dict[type[AnySite], str] = {
    WindowSite: "Windows",
    TokenSite: "Tokens",
    PatchSite: "Patches",
    MapSite: "Maps",
}

MECHANISMS = {
    "full": "exact softmax attention",
    "nystra": "kernel Nystrom of PnP-Nystra: linear, no retraining",
    "nystromformer": "row-normalised Nystrom of Nystromformer: linear, no retraining",
    "psal": "PatchMatch attention: the k nearest patches or tokens, memory O(n k)",
}

_LANDMARKS = ("landmarks", "iterations", "init")
_SEARCH = ("neighbors", "search_iterations", "patch_size", "metric", "seed", "temperature")
PARAMETERS: dict[str, tuple[str, ...]] = {
    "full": (),
    "nystra": (*_LANDMARKS, "threshold", "guard"),
    "nystromformer": _LANDMARKS,
    "psal": (*_SEARCH, "aggregate", "full_size", "local_window"),
}
"""What each mechanism reads besides ``mask``; a written plan lists just that."""


@dataclass(frozen=True)
class SiteParameters:
    """A mechanism with its parameters; ``full`` uses only ``mask``.

    Attributes:
        mechanism: a key of ``MECHANISMS``.
        landmarks: rows and columns of the landmark grid.
        iterations: of the pseudoinverse, 1 to 8.
        init: start value scaled per ``matrix``, or over the whole ``batch`` as the reference.
        threshold: the kernel is exponential below it and linear above (``nystra``).
        guard: share of the row mass below which the two-step form steps in; 0 is off (``nystra``).
        mask: ``regions`` keeps the network's shift mask, ``none`` ignores it.
        neighbors: matches of a query, 1 to 32 (``psal``, as all that follow).
        search_iterations: of the search, 1 to 16.
        patch_size: side of the compared patches at patch sites, odd, 1 to 23; 0 is the site's.
        metric: of patch sites: ``site`` is the site's own, else ``l2``, ``dot`` or ``cosine``.
        seed: of the search, 0 to 4095.
        temperature: what the site's logits are divided by, above 0.
        aggregate: patch sites that paste single pixels take the matches of spatial neighbours too.
        full_size: patch sites that shrink the maps they compare do not, and paste single pixels.
        local_window: side of the local windows at map sites.
        reason: why a site has what it has; text for the reader of a written plan.
    """

    mechanism: str = "full"
    landmarks: tuple[int, int] = (4, 4)
    iterations: int = 6
    init: str = "matrix"
    threshold: float = 5.0
    guard: float = 0.02
    mask: str = "regions"
    neighbors: int = 3
    search_iterations: int = 5
    patch_size: int = 0
    metric: str = "site"
    seed: int = 0
    temperature: float = 1.0
    aggregate: bool = False
    full_size: bool = False
    local_window: int = 32
    reason: str = ""

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        rows, columns = self.landmarks
        checks = (
            (self.mechanism in MECHANISMS, "mechanism", f"one of {', '.join(MECHANISMS)}"),
            (rows >= 1 and columns >= 1 and rows * columns <= 64, "landmarks", "1 to 64 in all"),
            (1 <= self.iterations <= 8, "iterations", "1 to 8"),
            (self.init in ("matrix", "batch"), "init", "matrix or batch"),
            (-30.0 <= self.threshold <= 30.0, "threshold", "-30 to 30"),
            (0.0 <= self.guard <= 0.5, "guard", "0 (off) to 0.5"),
            (self.mask in ("regions", "none"), "mask", "regions or none"),
            (1 <= self.neighbors <= 32, "neighbors", "1 to 32"),
            (1 <= self.search_iterations <= 16, "search_iterations", "1 to 16"),
            (
                self.patch_size == 0 or (self.patch_size % 2 and 1 <= self.patch_size <= 23),
                "patch_size",
                "0 (the site's) or an odd number from 1 to 23",
            ),
            (
                self.metric in ("site", "l2", "dot", "cosine"),
                "metric",
                "one of site, l2, dot, cosine",
            ),
            (0 <= self.seed <= 4095, "seed", "0 to 4095"),
            (0.0 < self.temperature <= 1e6, "temperature", "above 0"),
            (1 <= self.local_window <= 1024, "local_window", "1 to 1024"),
        )
        for fine, name, expected in checks:
            if not fine:
                raise NystraError(f"{name} {getattr(self, name)!r} is not {expected}")

    @property
    def pools(self) -> bool:
        """Whether tokens are pooled into landmarks, which leaves no place for a position bias."""
        return "landmarks" in PARAMETERS[self.mechanism]

    @property
    def searches(self) -> bool:
        """Whether a seeded search decides what is attended to."""
        return "seed" in PARAMETERS[self.mechanism]

    def reseeded(self) -> SiteParameters:
        """Return the same with the next seed."""
        return replace(self, seed=(self.seed + 1) % 4096)

    def fitted(self, geometry: WindowGeometry) -> SiteParameters:
        """Return these parameters, or ``full`` with the reason where they are undefined."""
        if self.mechanism == "full":
            return self
        rows, columns = geometry.window
        if self.mechanism == "psal":
            if self.neighbors <= rows * columns:
                return self
            return self.as_full(f"more neighbours than tokens of the {rows}x{columns} window")
        if self.landmarks[0] > rows or self.landmarks[1] > columns:
            return self.as_full(
                f"more landmarks than rows or columns of the {rows}x{columns} window"
            )
        if geometry.masked and self.mask == "regions":
            for side, shift, parts in zip(
                geometry.window, geometry.shift, self.landmarks, strict=True
            ):
                if cuts_a_cell(side, shift, parts):
                    return self.as_full(
                        f"a region border cuts a landmark cell (window {side}, shift {shift}, "
                        f"{parts} cells); mask 'none' ignores the regions"
                    )
        return self

    def as_full(self, reason: str = "") -> SiteParameters:
        """Return exact attention with the same mask."""
        return replace(self, mechanism="full", reason=reason)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        values = asdict(self)
        values["landmarks"] = list(self.landmarks)
        names = (
            "mechanism",
            *PARAMETERS[self.mechanism],
            "mask",
            *(("reason",) if self.reason else ()),
        )
        return {name: values[name] for name in names}


def mechanism(parameters: SiteParameters, module: AnySite, form: Form) -> AnyMechanism:
    """Return the callable that computes attention at a site.

    Raises:
        NystraError: the mechanism does not serve sites of this kind.
    """
    if not serves(parameters.mechanism, module):
        raise NystraError(f"{parameters.mechanism} does not serve {_kind(module).lower()}")
    home = importlib.import_module(f".{parameters.mechanism}", __package__)
    found: AnyMechanism = getattr(home, _kind(module))(parameters, form)
    return found


def serves(name: str, module: AnySite) -> bool:
    """Tell whether a mechanism computes attention at sites of this kind."""
    home = importlib.import_module(f".{name}", __package__)
    return hasattr(home, _kind(module))


def unserved(name: str, module: AnySite) -> str:
    """Return why a site of this kind keeps full attention under a mechanism."""
    return f"{name} serves no attention between {_kind(module).lower()}"


def _kind(module: AnySite) -> str:
    return next(name for kind, name in _CLASSES.items() if isinstance(module, kind))


def masked(parameters: SiteParameters, geometry: WindowGeometry) -> int:
    """Return the ``mask`` attribute of a window operator: 1 where regions are kept apart."""
    return int(geometry.masked and parameters.mask == "regions")
