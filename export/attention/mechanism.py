"""Mechanisms: ways to compute attention at a site, with their parameters.

A mechanism is a folder next to this file. Its ``parameters.py`` holds a subclass of `Mechanism`,
which imports neither torch nor onnx; its ``sites.py`` has the implementation, a class for each kind
of site that it supports. The table of all is in ``registry.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...core.option import Options, option
from ...core.option_kinds import Choice
from ...models.geometry import PatchGeometry, TokenGeometry, WindowGeometry

Geometry = WindowGeometry | TokenGeometry | PatchGeometry | None


@dataclass(frozen=True)
class Mechanism(Options):
    """A mechanism with its parameters: every field except ``reason``.

    Attributes:
        name: Its name in plans, on the command line and in file names.
        summary: One line for ``--help``.
        site_classes: Names of the classes of its ``sites.py``: one for each kind of site that it
            supports, so that the module is imported only where it is used.
        keeps_bias: It keeps a relative position bias.
        has_near_ties: It selects keys, and rounding may change the selection.
        trained: Names of the trained tensors that a site needs.
        takes_site: Its implementation takes the site; always with trained tensors.
        advice: What to change if its accuracy drop is too large.
        candidates: The candidates of ``--attn auto``: parameters, and whether they are also tried
            in large networks.
        reason: Why a site has this mechanism; a text in written plans.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    site_classes: ClassVar[tuple[str, ...]] = ()
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

    def slower_than_exact(self, geometry: Geometry) -> str:
        """Return why exact attention is faster at a site of this geometry, which it fits, or ""."""
        return ""

    def at(self, geometry: Geometry) -> Mechanism:
        """Return the mechanism with its parameters for a site of this geometry, which it fits."""
        return self

    def settings(self, geometry: Geometry) -> Sequence[Mechanism]:
        """Return what it may be at a site where its parameters are not all given.

        Where there is a choice, `choose_settings` measures all of them.
        """
        return ()

    def operations(self, head_dim: int, value_dim: int) -> float:
        """Return about the multiply-adds of a query, by which its settings are compared.

        Args:
            head_dim: Channels of queries and keys.
            value_dim: Channels of values.
        """
        return 0.0

    def for_network(self, architecture: str, hyper: Mapping[str, Any]) -> Mechanism:
        """Return the mechanism that a preset stands for in a network, others themselves.

        Args:
            architecture: Name of the network's architecture.
            hyper: Its hyper-parameters.
        """
        return self

    def why_not_faster(self, tokens: int) -> str:
        """Return why exact attention over so many tokens is cheaper, or ""."""
        return ""

    def reseed(self) -> Mechanism:
        """Return the mechanism with another seed, or itself if it has none."""
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
        """Return the name and non-default parameters: ``nystra landmarks=2x2``."""
        kinds = self.list_options()
        changed = [
            f"{name}={kinds[name].show(value)}" for name, value in self.list_changes().items()
        ]
        return " ".join((self.name, *changed))


@dataclass(frozen=True)
class Windowed(Mechanism):
    """A mechanism for shifted windows, which may ignore their regions."""

    mask: str = option(
        Choice(
            "regions",
            "keep or ignore the network's mask between the regions of shifted windows",
            ("regions", "none"),
            flag="--shift-mask",
        ),
        kw_only=True,
    )

    def fits(self, geometry: Geometry) -> str:
        """Return why no operator supports a window (sides other than rows and columns), or ""."""
        if isinstance(geometry, WindowGeometry) and len(geometry.window) != 2:
            return f"{self.name} needs windows of rows and columns, not of {geometry.window}"
        return ""

    def choose_mask(self, geometry: WindowGeometry) -> int:
        """Return the ``mask`` attribute of a window operator: 1 where regions are kept apart."""
        return int(geometry.masked and self.mask == "regions")
