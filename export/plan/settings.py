"""The settings of a mechanism where they are not given, by the errors that they make on images.

What a linear form loses depends on how sharp the attention of a network is, and on what the network
makes of its errors. Both are measured, for each class of sites of the same geometry:

1. All settings are computed at every site of the network as trained: the errors of the site.
2. The network is run with the usual setting at one class at a time: the change of its output that
   comes with this error. That of another error is taken to be in proportion to its square, and that
   of several classes to be the sum.
3. A class has the setting with the smallest error among those that take few operations beside
   exact attention. Then the setting of one class after the other is replaced, each time by the one
   that gains most for its operations, until the output is expected to keep the limit. The network
   is run with them; if its output changes by more, the expectation is corrected.
4. Where the finest settings change the output too much, the sites whose errors weigh most keep
   exact attention, unless some of their settings were given.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from ...core.arrays import Array
from ...core.json_text import json_number
from ...core.ports.port import Port
from ...core.text import pluralize
from ...models.geometry import TokenGeometry, WindowGeometry
from ...runtime.metrics.measures import decibels, mean_square, measure_for
from ..attention.implementation import implement
from ..attention.mechanism import Mechanism
from ..attention.plan import Plan
from ..attention.site import Site, find_sites, neutral, swap
from ..load.images import Feeds
from ..progress import Progress
from ..pytorch.network_session import NetworkSession
from .setting_classes import MOST_OPERATIONS, SiteClass, find_classes

DEFAULT_LIMIT = 55.0
"""dB against exact attention that are sufficient."""

_MOST_IMAGES = 4
_RUNS = 3
"""Most runs with chosen settings."""


@dataclass(frozen=True)
class Settings:
    """The mechanism of every site, and what was measured.

    Attributes:
        sites: Path of a site -> its mechanism.
        summary: One line; "" if nothing was to be chosen.
        figures: The same in JSON form.
    """

    sites: dict[str, Mechanism]
    summary: str = ""
    figures: dict[str, Any] = field(default_factory=dict)


def choose_settings(
    network: nn.Module,
    output: Port,
    plan: Plan,
    resolved: Mapping[str, Mechanism],
    samples: Mapping[str, Feeds],
    limit: float | None = None,
    progress: Progress = lambda _: None,
) -> Settings:
    """Choose the parameters that a plan leaves open, by the change of the output on images.

    Args:
        network: The loaded network.
        output: Its output.
        plan: The plan; parameters that it gives are kept.
        resolved: Mechanism of every site under the plan, from `resolve`.
        samples: Inputs by name of the image; the first four are used.
        limit: PSNR in dB against exact attention that is sufficient, that of the mean squared
            change over the images; None: `DEFAULT_LIMIT`.
        progress: Called with the name of each step.

    Returns:
        The sites, as before where nothing is to be chosen.
    """
    classes = find_classes(network, plan, resolved)
    if not classes:
        return Settings(dict(resolved))
    headline = measure_for(output).headline
    if headline != "psnr":
        text = f"usual settings: outputs are compared by {headline}, for which there is no limit"
        return Settings(dict(resolved), text)
    progress(f"measure settings at {len(classes)} kinds of sites")
    images = dict([*samples.items()][:_MOST_IMAGES])
    trial = _Trial(network, output, images)
    trial.measure_errors(classes)
    before = trial.change_by(resolved)
    for number, group in enumerate(classes, 1):
        progress(f"{number}/{len(classes)} run with one kind of sites")
        alone = trial.exact | {path: resolved[path] for path in group.paths}
        group.change = trial.change_by(alone) if len(classes) > 1 else before
        group.take_cheap()
    limit = DEFAULT_LIMIT if limit is None else limit
    sites, change = dict(resolved), before
    budget = mean_square(limit)
    expected = sum(group.change for group in classes)
    for number in range(1, _RUNS + 1):
        _refine(classes, budget * expected / max(change, 1e-30))
        finer = {path: group.setting for group in classes for path in group.paths}
        if sites == sites | finer:
            break
        progress(f"{number}/{_RUNS} run with finer settings")
        sites |= finer
        change = trial.change_by(sites)
        if change <= budget:
            break
        expected = sum(group.predict() for group in classes)
    finest = change
    exact: dict[str, Mechanism] = {}
    for _ in range(_RUNS):
        paths = _find_worst(classes, exact, budget / max(change, 1e-30))
        if change <= budget or not paths:
            break
        progress(f"run with exact attention at {pluralize(len(exact) + len(paths), 'site')}")
        exact |= {path: replace(trial.exact[path], reason=_too_sharp(finest)) for path in paths}
        change = trial.change_by(sites | exact)
    count = len(trial.samples)
    description = _describe(classes, exact, count, limit, before, change)
    return Settings(sites | exact, *description)


def _too_sharp(change: float) -> str:
    """Return why sites keep exact attention, from the change by the finest settings, above 0."""
    limit = math.floor(decibels(change))
    return f"its settings change the output too much (`min_psnr` {limit} takes them everywhere)"


def _refine(classes: list[SiteClass], allowed: float) -> None:
    """Choose settings with smaller errors until the change is expected to be allowed."""
    while sum(group.predict() for group in classes) > allowed:
        steps = [(*step, group) for group in classes for step in group.steps()]
        if not steps:
            return
        _, tried, group = max(steps, key=lambda step: step[0])
        group.chosen = tried


def _find_worst(classes: list[SiteClass], exact: Container[str], share: float) -> list[str]:
    """Return the sites without which a share of the change is expected, beside exact ones."""
    expected = {
        path: group.predict_at(path)
        for group in classes
        for path in group.paths
        if path not in exact
    }
    rest = sum(expected.values())
    allowed = share * rest
    free = {path for group in classes if group.free for path in group.paths}
    worst = []

    def place_of(path: str) -> tuple[float, str]:
        return -expected[path], path

    for path in sorted(expected.keys() & free, key=place_of):
        if rest <= allowed:
            break
        rest -= expected[path]
        worst.append(path)
    return worst


class _Trial:
    """Runs of a network on images, compared with exact attention.

    Attributes:
        exact: The network's own mechanism of every site.
        samples: The images.
    """

    def __init__(self, network: nn.Module, output: Port, samples: Mapping[str, Feeds]) -> None:
        self.exact = neutral(network)
        self.samples = samples
        self._network = network
        self._measure = measure_for(output)
        self._expected: list[Array] = []

    def measure_errors(self, classes: list[SiteClass]) -> None:
        """Run with exact attention, and add the errors and operations of all settings."""
        probed = swap(self._network, self.exact, "operator")
        groups = {path: group for group in classes for path in group.paths}
        for site in find_sites(probed):
            if site.path in groups:
                probe: Any = _Probe(site, groups[site.path])
                site.module.implementation = probe
        self._expected = self._outputs(probed)

    def change_by(self, sites: Mapping[str, Mechanism]) -> float:
        """Return the mean squared change of the output with these mechanisms."""
        outputs = self._outputs(swap(self._network, sites, "operator"))
        changes = [
            mean_square(self._measure.value(got, expected))
            for got, expected in zip(outputs, self._expected, strict=True)
        ]
        return sum(changes) / len(changes)

    def _outputs(self, network: nn.Module) -> list[Array]:
        session = NetworkSession(network)
        return [session(*feeds.values()) for feeds in self.samples.values()]


class _Probe:
    """Exact attention of a site, which also computes all settings of its class."""

    def __init__(self, site: Site, group: SiteClass) -> None:
        self.exact: Any = site.module.implementation
        self.path = site.path
        self.group = group
        self.computed: list[Any] = [
            implement(tried.setting, site.module, "operator") for tried in group.tried
        ]

    def __call__(self, *arguments: Any) -> Tensor:
        out: Tensor = self.exact(*arguments)
        keys, head_dim, value_dim = _read_sizes(arguments)
        queries = out.numel() / value_dim
        exact = keys * (head_dim + value_dim)
        self.group.exact += queries * exact
        default = self.group.tried[0].setting.operations(head_dim, value_dim)
        for tried, compute in zip(self.group.tried, self.computed, strict=True):
            operations = tried.setting.operations(head_dim, value_dim)
            tried.operations += queries * operations
            if operations > max(default, MOST_OPERATIONS * exact):
                tried.errors[self.path] = math.inf  # it is never chosen
            else:
                change = (compute(*arguments) - out).double()
                tried.errors[self.path] += float((change**2).sum())
        return out


def _read_sizes(arguments: tuple[Any, ...]) -> tuple[int, int, int]:
    """Return the keys of a query, and the channels of keys and values, of a call of a site."""
    geometry = arguments[-1]
    if isinstance(geometry, WindowGeometry):
        return geometry.keys, geometry.head_dim, geometry.value_dim
    _, k, v = arguments[:3]
    if isinstance(geometry, TokenGeometry):
        return k.shape[2], k.shape[3], v.shape[3]
    keys = k.shape[2] * k.shape[3]
    return keys, k.shape[1], v.shape[1]


def _describe(
    classes: list[SiteClass],
    exact: Collection[str],
    images: int,
    limit: float,
    before: float,
    change: float,
) -> tuple[str, dict[str, Any]]:
    """Return what was chosen and why, in one line and in JSON form."""
    default, chosen = decibels(before), decibels(change)
    counts: Counter[str] = Counter()
    for group in classes:
        setting = str(group.setting).partition(" ")[2]
        counts[setting] += len({*group.paths}.difference(exact))
    counts["exact attention"] += len(exact)
    settings = ", ".join(f"{text} at {pluralize(n, 'site')}" for text, n in counts.items() if n)
    on = f"on {pluralize(images, 'image')}, {limit:g} wanted"
    if not exact and all(group.chosen is group.tried[0] for group in classes):
        text = f"{settings}, the usual ones: {chosen:.1f} dB against exact attention {on}"
    else:
        text = (
            f"{settings}: {chosen:.1f} dB against exact attention {on}; the usual ones give "
            f"{default:.1f}"
        )
    figures = {
        "wanted": limit,
        "psnr": json_number(chosen),
        "usual_psnr": json_number(default),
        "exact": sorted(exact),
        "classes": [group.as_dict() for group in classes],
    }
    return text, figures
