"""The effect of a plan at every site of a network, before an export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from ...core.ports.port import Shape, join_sides
from ...models.facts import Facts
from ..attention.cost import count_operations
from ..attention.mechanism import Mechanism
from ..attention.site import find_sites
from ..load.images import Feeds
from ..progress import Progress
from ..validate.fidelity import measure_sites


@dataclass(frozen=True)
class SiteReport:
    """One row of ``nystra inspect``.

    Attributes:
        path: Path of the site.
        tokens: Keys a query sees, N; None if it grows with the image.
        flops_share: Share of the whole network's multiply-adds, spent in exact attention here.
        bias: Largest entry of the position bias, in logits, or None.
        planned: The planned mechanism.
        error: Relative error of the site's output under the plan, or None as trained.
        guarded: Share of tokens that the guard changed, or None.
    """

    path: str
    tokens: int | None
    flops_share: float
    bias: float | None
    planned: Mechanism
    error: float | None
    guarded: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        attributes = vars(self).items()
        values = {key: value for key, value in attributes if key != "planned"}
        return values | {"plan": self.planned.as_dict()}


@dataclass(frozen=True)
class Inspection:
    """The report of ``nystra inspect`` on a network.

    Attributes:
        sites: A report for every site, in the order of the network.
        shape: Shape of the first input that operations are counted for.
        flops: FLOPs of the whole network, 2 for each multiply-add of convolutions and matrix
            products.
        attention: Those of exact attention.
    """

    sites: list[SiteReport]
    shape: Shape
    flops: int
    attention: int

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        counted = {"shape": self.shape, "network": self.flops, "attention": self.attention}
        return {"flops": counted, "sites": [site.as_dict() for site in self.sites]}

    def describe(self) -> str:
        """Return how much of the network's operations attention is."""
        return (
            f"exact attention is {self.attention / self.flops:.0%} of the network's operations: "
            f"{self.attention / 1e9:.3g} of {self.flops / 1e9:.3g} GFLOPs for an input of "
            f"{join_sides(self.shape)}"
        )


def inspect_network(
    network: nn.Module,
    facts: Facts,
    resolved: Mapping[str, Mechanism],
    samples: Mapping[str, Feeds],
    progress: Progress = lambda _: None,
) -> Inspection:
    """Return the effect of a plan at every site, and the cost of exact attention there.

    Args:
        network: The loaded network.
        facts: Facts of the network.
        resolved: Mechanism of every site.
        samples: Inputs by name of the image, on which errors and guarded shares are measured.
        progress: Called with the name of each step.
    """
    measured = measure_sites(network, resolved, samples, progress)
    costs = {cost.path: cost for cost in measured}
    progress("count operations")
    total, by_site = count_operations(network, facts)
    reports = []
    for site in find_sites(network):
        cost = costs.get(site.path)
        reports.append(
            SiteReport(
                site.path,
                site.tokens,
                by_site[site.path] / total,
                site.bias_size,
                resolved[site.path],
                None if cost is None else cost.error,
                None if cost is None else cost.guarded,
            )
        )
    shape = facts.inputs[0].shape(facts.test_size())
    return Inspection(reports, shape, total, sum(by_site.values()))
