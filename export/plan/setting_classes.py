"""Classes of sites of the same geometry, and what is measured of each of their settings."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ...core.json_text import json_number
from ...runtime.metrics.measures import decibels
from ..attention.implementation import geometry_for
from ..attention.mechanism import Mechanism
from ..attention.plan import Plan
from ..attention.site import Site, find_sites

_FEW_OPERATIONS = 0.2
"""Share of the operations of exact attention that a setting may take in any case."""

MOST_OPERATIONS = 2 / 3
"""Share of them that it may take for the limit."""


@dataclass
class TriedSetting:
    """A setting at a class of sites.

    Attributes:
        setting: The setting.
        operations: About its multiply-adds on all images.
        errors: Path of a site -> sum of the squared errors of its outputs; infinite, and not
            computed, of a setting that takes too many operations.
    """

    setting: Mechanism
    operations: float = 0.0
    errors: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def error(self) -> float:
        """Of all sites."""
        return sum(self.errors.values())


@dataclass
class SiteClass:
    """Sites of the same geometry and plan, whose settings are chosen together.

    Attributes:
        paths: Paths of its sites.
        free: No setting is given, so that they may keep exact attention.
        tried: Its settings, the usual one first.
        exact: Multiply-adds of exact attention on all images.
        change: Mean squared change of the output with the usual setting at these sites alone.
        chosen: The chosen setting.
    """

    paths: list[str]
    free: bool
    tried: list[TriedSetting]
    exact: float = 0.0
    change: float = 0.0
    chosen: TriedSetting = field(init=False)

    def __post_init__(self) -> None:
        self.chosen = self.tried[0]

    @property
    def setting(self) -> Mechanism:
        """The chosen setting."""
        return self.chosen.setting

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form: the chosen setting, and the expected PSNR with those computed."""
        computed = [tried for tried in self.tried if math.isfinite(tried.error)]
        expected = {str(tried.setting): self.predict(tried) for tried in computed}
        return {
            "sites": self.paths,
            "setting": str(self.setting),
            "expected_psnr": {
                text: json_number(decibels(change)) for text, change in expected.items()
            },
        }

    def predict(self, tried: TriedSetting | None = None) -> float:
        """Return the change of the output that is expected with a setting, or the chosen one."""
        return self._scale_error((tried or self.chosen).error)

    def predict_at(self, path: str) -> float:
        """Return the change of the output that is expected of a site with the chosen setting."""
        return self._scale_error(self.chosen.errors[path])

    def _scale_error(self, error: float) -> float:
        return self.change * error / max(self.tried[0].error, 1e-30)

    def take_cheap(self) -> None:
        """Choose the setting with the smallest error that takes few operations."""
        limit = max(self.tried[0].operations, _FEW_OPERATIONS * self.exact)
        cheap = [tried for tried in self.tried if tried.operations <= limit]
        self.chosen = min(cheap, key=lambda tried: tried.error)

    def steps(self) -> list[tuple[float, TriedSetting]]:
        """Return the settings with smaller errors, and what each gains for its operations."""
        minimum = self.exact * 1e-6  # also of a setting that takes no more than the chosen one
        return [
            (
                (self.predict() - self.predict(tried))
                / max(tried.operations - self.chosen.operations, minimum),
                tried,
            )
            for tried in self.tried
            if tried.error < self.chosen.error and tried.operations <= MOST_OPERATIONS * self.exact
        ]


def find_classes(
    network: nn.Module, plan: Plan, resolved: Mapping[str, Mechanism]
) -> list[SiteClass]:
    """Return the classes of sites that have a choice of settings."""
    groups: dict[str, list[Site]] = {}
    for site in find_sites(network):
        planned = plan.at(site.path)
        if resolved[site.path].name == planned.name:
            form = getattr(site.module, "geometry", None)
            kind = type(site.module).__name__
            key = repr((kind, form, planned))
            groups.setdefault(key, []).append(site)
    classes = []
    for sites in groups.values():
        planned, module = plan.at(sites[0].path), sites[0].module
        settings = planned.settings(geometry_for(planned, module))
        if len(settings) > 1:
            paths = [site.path for site in sites]
            is_default = planned == type(planned)()
            tried = list(map(TriedSetting, settings))
            classes.append(SiteClass(paths, is_default, tried))
    return classes
