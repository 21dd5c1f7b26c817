"""Mechanisms: what computes attention at a site, with its parameters.

A mechanism is a folder beside this file. Its ``parameters.py`` holds a subclass of `Mechanism`,
which imports neither torch nor onnx; its ``sites.py`` holds what computes, a class for each kind
of site it serves. The table of all is in ``registry.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...core.option import Options, option
from ...core.option_kinds import Choice
from ...models.geometry import PatchGeometry, TokenGeometry, WindowGeometry

Geometry = WindowGeometry | TokenGeometry | PatchGeometry | None


@dataclass(frozen=True)
class Mechanism(Options):
    """A mechanism with its parameters: its options; each field but ``reason`` is one.

    Attributes:
        name: In the plan, on the command line and in file names.
        summary: One line for the reader of ``--help``.
        keeps_bias: A relative position bias takes part.
        has_near_ties: It decides what is attended to, and rounding may turn its decisions.
        trained: Names of the trained tensors that a site has to hold.
        takes_site: What computes it is given the site; always where it has trained tensors.
        advice: What to change where it loses too much.
        candidates: What ``--attn auto`` may put at a site: parameters, and whether also in networks
            that leave no time for all.
        reason: Why a site has what it has; text for the reader of a written plan.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    keeps_bias: ClassVar[bool] = True
    has_near_ties: ClassVar[bool] = False
    trained: ClassVar[tuple[str, ...]] = ()
    takes_site: ClassVar[bool] = False
    advice: ClassVar[str] = ""
    candidates: ClassVar[tuple[tuple[dict[str, Any], bool], ...]] = ()

    reason: str = field(default="", kw_only=True, compare=False)

    def fits(self, geometry: Geometry) -> str:
        """Return why the mechanism is undefined at a site of this geometry, or ""."""
        return ""

    def at(self, geometry: Geometry) -> Mechanism:
        """Return the mechanism with what a site of this geometry needs; it fits there."""
        return self

    def cannot_pay(self, tokens: int) -> str:
        """Return why exact attention to so many tokens costs less, or ""."""
        return ""

    def reseeded(self) -> Mechanism:
        """Return the same with another seed of its search; itself where there is none."""
        return self

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        values = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self.values().items()
        }
        reason = {"reason": self.reason} if self.reason else {}
        return {"mechanism": self.name, **values, **reason}

    def __str__(self) -> str:
        """Return the name and what differs from the defaults: ``nystra landmarks=2x2``."""
        kinds = self.declared()
        changed = [f"{name}={kinds[name].show(value)}" for name, value in self.changed().items()]
        return " ".join((self.name, *changed))


@dataclass(frozen=True)
class Windowed(Mechanism):
    """A mechanism that serves shifted windows, and may ignore their regions."""

    mask: str = option(
        Choice(
            "regions",
            "shifted windows keep the network's mask between their regions, or ignore it",
            ("regions", "none"),
            flag="--shift-mask",
        ),
        kw_only=True,
    )

    def fits(self, geometry: Geometry) -> str:
        """Return why no operator takes a window: it has other sides than rows and columns."""
        if isinstance(geometry, WindowGeometry) and len(geometry.window) != 2:
            return f"{self.name} needs windows of rows and columns, not of {geometry.window}"
        return ""

    def masked(self, geometry: WindowGeometry) -> int:
        """Return the ``mask`` attribute of a window operator: 1 where regions are kept apart."""
        return int(geometry.masked and self.mask == "regions")
