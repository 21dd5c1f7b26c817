"""What is computed at a site: the parameters, and the table of mechanisms.

Adding a mechanism: a file beside this one, a row in ``MECHANISMS``, its parameters below.
"""

from __future__ import annotations

import importlib
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from ...models.sites import (
    TokenMechanism,
    TokenSite,
    WindowGeometry,
    WindowMechanism,
    WindowSite,
)
from ...plugins.errors import NystraError
from ...plugins.operators.window_schema import cuts_a_cell

Form = Literal["plain", "operator"]

MECHANISMS = {
    "full": "exact softmax attention",
    "nystra": "kernel Nystrom of PnP-Nystra: linear, no retraining",
    "nystromformer": "row-normalised Nystrom of Nystromformer: linear, no retraining",
}


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
        reason: why a site has what it has; text for the reader of a written plan.
    """

    mechanism: str = "full"
    landmarks: tuple[int, int] = (4, 4)
    iterations: int = 6
    init: str = "matrix"
    threshold: float = 5.0
    guard: float = 0.02
    mask: str = "regions"
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
        )
        for fine, name, expected in checks:
            if not fine:
                raise NystraError(f"{name} {getattr(self, name)!r} is not {expected}")

    def fitted(self, geometry: WindowGeometry) -> SiteParameters:
        """Return these parameters, or ``full`` with the reason where they are undefined."""
        if self.mechanism == "full":
            return self
        rows, columns = geometry.window
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
        if not self.reason:
            del values["reason"]
        if self.mechanism == "full":
            return {key: values[key] for key in ("mechanism", "mask", "reason") if key in values}
        if self.mechanism == "nystromformer":
            del values["threshold"], values["guard"]
        return values


def mechanism(
    parameters: SiteParameters, module: WindowSite | TokenSite, form: Form
) -> WindowMechanism | TokenMechanism:
    """Return the callable that computes attention at a site."""
    home = importlib.import_module(f".{parameters.mechanism}", __package__)
    if isinstance(module, TokenSite):
        tokens: TokenMechanism = home.Tokens(parameters, form)
        return tokens
    windows: WindowMechanism = home.Windows(parameters, form)
    return windows


def masked(parameters: SiteParameters, geometry: WindowGeometry) -> int:
    """Return the ``mask`` attribute of a window operator: 1 where regions are kept apart."""
    return int(geometry.masked and parameters.mask == "regions")
