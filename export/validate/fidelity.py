"""The accuracy of a plan: the planned network against full attention, on images.

Both run in the operator form, whose torch ops are as fast as the model file if the native library
is built. They are not validated here: the file is compared with the plain form (see `references`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...core.json_text import json_number
from ...core.ports.port import Port
from ...models.geometry import WindowGeometry
from ...models.sites import WindowImplementation, WindowSite
from ...runtime.metrics.measures import MEASURES, Measure, measure_for
from ..attention.implementation import implement
from ..attention.mechanism import Mechanism
from ..attention.site import find_sites, neutral, swap
from ..load.images import Feeds, Pixels
from ..progress import Progress
from ..pytorch.network_session import NetworkSession

IMAGE = Port("output", "picture")
"""The default output of a network."""


@dataclass
class SiteCost:
    """The effect of the plan at one site.

    Attributes:
        path: Path of the site.
        error: Relative error of the site's output, Frobenius norm over all images, with every
            other site exact.
        guarded: Share of tokens that the guard changed, None for mechanisms without a guard.
    """

    path: str
    error: float = 0.0
    guarded: float | None = None


@dataclass
class Fidelity:
    """A plan against full attention, by image: the headline figure of the output's measure.

    Attributes:
        measure: How outputs are compared; PSNR in dB for images.
        plan: The plan against full attention at the same window.
        no_bias: Full attention without position bias against full attention, empty when no
            planned site drops a bias.
        as_trained: The plan against the network at its trained window, empty when it is the same.
        figures: All figures of the plan against full attention.
        sites: The effect of the plan at each site that is not as trained, the largest error first.
    """

    measure: Measure = MEASURES["picture"]
    plan: dict[str, float] = field(default_factory=dict)
    no_bias: dict[str, float] = field(default_factory=dict)
    as_trained: dict[str, float] = field(default_factory=dict)
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    sites: list[SiteCost] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """Mean of the plan against full attention."""
        return float(np.mean(list(self.plan.values())))

    @property
    def trained_mean(self) -> float | None:
        """Mean of the plan against the network at its trained window, None if it is the same."""
        if not self.as_trained:
            return None
        return float(np.mean(list(self.as_trained.values())))

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        numbers = {}
        for key in ("plan", "no_bias", "as_trained"):
            figures = getattr(self, key)
            numbers[key] = {name: json_number(value) for name, value in figures.items()}
        sites = []
        for cost in self.sites:
            entry = {"path": cost.path, "error": cost.error, "guarded": cost.guarded}
            sites.append(entry)
        trained = self.trained_mean
        return {
            **numbers,
            "figure": self.measure.headline,
            "figures": self.figures,
            "mean": json_number(self.mean),
            "trained_mean": None if trained is None else json_number(trained),
            "sites": sites,
        }


def fidelity_steps(
    samples: Mapping[str, Feeds], trained: nn.Module | None, *, as_trained: bool
) -> int:
    """Return the number of steps of `measure_fidelity`: 0 if there is no difference.

    Args:
        samples: Inputs by name of the image.
        trained: The network at its trained window, if that is another one.
        as_trained: The plan is the network's own attention.
    """
    return 0 if as_trained and trained is None else len(samples)


def measure_fidelity(
    network: nn.Module,
    resolved: Mapping[str, Mechanism],
    samples: Mapping[str, Feeds],
    as_trained: nn.Module | None = None,
    progress: Progress = lambda _: None,
    output: Port = IMAGE,
) -> Fidelity:
    """Measure the accuracy of a plan.

    Args:
        network: The loaded network.
        resolved: Mechanism of every site.
        samples: Inputs of the network in the order of its arguments, by name of the image.
        as_trained: The network at its trained window, if that is another one.
        progress: Called with the name of each step.
        output: The output of the network.
    """
    measure = measure_for(output)
    probed = _Probed(network, resolved)
    if not probed.probes and as_trained is None:  # the plan is full attention itself
        return Fidelity(measure, plan=dict.fromkeys(samples, measure.best))
    planned = NetworkSession(swap(network, resolved, "operator"))
    exact = swap(network, neutral(network), "operator")
    bare = NetworkSession(_without_dropped_bias(exact, resolved))
    drops_bias = any(
        s.bias_size is not None for s in find_sites(network) if not resolved[s.path].keeps_bias
    )
    trained = None
    if as_trained is not None:
        trained = NetworkSession(swap(as_trained, neutral(as_trained), "operator"))
    result = Fidelity(measure)
    for name, feeds in samples.items():
        progress(f"against full attention: {name}")
        arrays = list(feeds.values())
        full = probed(*arrays)
        got = planned(*arrays) if probed.probes else full
        result.figures[name] = measure.figures(got, full)
        result.plan[name] = result.figures[name][measure.headline]
        if drops_bias:
            result.no_bias[name] = measure.value(bare(*arrays), full)
        if trained is not None:
            result.as_trained[name] = measure.value(got, trained(*arrays))
    result.sites = probed.costs()
    return result


def _without_dropped_bias(network: nn.Module, resolved: Mapping[str, Mechanism]) -> nn.Module:
    for site in find_sites(network):
        if not resolved[site.path].keeps_bias and isinstance(site.module, WindowSite):
            site.module.implementation = _Biasless(site.module.implementation)
    return network


@dataclass(frozen=True)
class _Biasless:
    exact: WindowImplementation

    def __call__(self, qkv: Tensor, bias_table: Tensor | None, geometry: WindowGeometry) -> Tensor:
        return self.exact(qkv, None, geometry)


class _Probe:
    def __init__(self, exact: WindowImplementation, planned: WindowImplementation) -> None:
        self.exact, self.planned = exact, planned
        self.difference = self.energy = 0.0
        self.guarded: list[float] = []

    def __call__(self, *arguments: Any) -> Tensor:
        exact = self.exact(*arguments)
        with_share = getattr(self.planned, "with_share", None)
        if with_share is None:
            planned = self.planned(*arguments)
        else:
            planned, share = with_share(*arguments)
            self.guarded.append(share)
        change = (planned - exact).double()
        self.difference += float(torch.sum(change**2))
        self.energy += float(torch.sum(exact.double() ** 2))
        return exact


class _Probed:
    def __init__(self, network: nn.Module, resolved: Mapping[str, Mechanism]) -> None:
        self.probes: dict[str, _Probe] = {}
        trained = neutral(network)
        copied = swap(network, trained, "operator")
        for site in find_sites(copied):
            if resolved[site.path] != trained[site.path]:
                planned: Any = implement(resolved[site.path], site.module, "operator")
                exact: Any = site.module.implementation
                site.module.implementation = self.probes[site.path] = _Probe(exact, planned)
        self._backend = NetworkSession(copied)

    def __call__(self, *arrays: Pixels) -> Pixels:
        return self._backend(*arrays)

    def costs(self) -> list[SiteCost]:
        costs = [
            SiteCost(
                path,
                (probe.difference / max(probe.energy, 1e-300)) ** 0.5,
                float(np.mean(probe.guarded)) if probe.guarded else None,
            )
            for path, probe in self.probes.items()
        ]
        return sorted(costs, key=lambda cost: -cost.error)


def measure_sites(
    network: nn.Module,
    resolved: Mapping[str, Mechanism],
    samples: Mapping[str, Feeds],
    progress: Progress = lambda _: None,
) -> list[SiteCost]:
    """Return the cost of every site that is not as trained, the largest error first."""
    probed = _Probed(network, resolved)
    if probed.probes:
        for number, (name, feeds) in enumerate(samples.items(), 1):
            progress(f"{number}/{len(samples)} measure {len(probed.probes)} sites on {name}")
            probed(*feeds.values())
    return probed.costs()
