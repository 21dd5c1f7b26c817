"""What a plan does at every site of a network, before anything is exported."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ..models.facts import Facts
from ..models.sites import WindowSite
from .attention.mechanism import SiteParameters
from .attention.site import Site, find_sites, swap
from .fidelity import measure_sites
from .pictures import Pixels


@dataclass(frozen=True)
class SiteReport:
    """One row of ``nystra inspect``.

    Attributes:
        path: of the site.
        tokens: keys a query sees, N.
        flops_share: of the whole network's multiply-adds, spent in exact attention here.
        bias: largest entry of the position bias, in logits, or None.
        parameters: what the plan does here.
        error: relative error of the site's output under the plan, or None for ``full``.
        guarded: share of tokens the guard touched, or None.
    """

    path: str
    tokens: int
    flops_share: float
    bias: float | None
    parameters: SiteParameters
    error: float | None
    guarded: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        values = {key: value for key, value in vars(self).items() if key != "parameters"}
        return values | {"plan": self.parameters.as_dict()}


def inspect_network(
    network: nn.Module,
    facts: Facts,
    resolved: Mapping[str, SiteParameters],
    images: Mapping[str, Pixels],
) -> list[SiteReport]:
    """Return a report for every site, in the order of the network.

    Args:
        network: the loaded network.
        facts: of the network.
        resolved: parameters of every site.
        images: pictures (1, C, H, W) that errors and guarded shares are measured on.
    """
    costs = {}
    if any(one.mechanism != "full" for one in resolved.values()):
        costs = {cost.path: cost for cost in measure_sites(network, resolved, images)}
    size = _counting_size(facts)
    total = network_flops(network, facts, size)
    reports = []
    for site in find_sites(network):
        cost = costs.get(site.path)
        reports.append(
            SiteReport(
                site.path,
                site.tokens,
                _attention_flops(site, size) / total,
                site.bias_size,
                resolved[site.path],
                None if cost is None else cost.error,
                None if cost is None else cost.guarded,
            )
        )
    return reports


def network_flops(network: nn.Module, facts: Facts, size: tuple[int, int]) -> int:
    """Return the floating-point operations of one picture (height, width) with exact attention.

    Counted by PyTorch on the meta device: convolutions and matrix products, 2 for each
    multiply-add.
    """
    exact = {site.path: SiteParameters() for site in find_sites(network)}
    twin = copy.deepcopy(swap(network, exact)).to("meta")
    image = torch.empty(1, facts.input_channels, *size, device="meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        twin(image)
    return int(counter.get_total_flops())


def _counting_size(facts: Facts) -> tuple[int, int]:
    if facts.fixed_size is not None:
        return facts.fixed_size
    rows, columns = facts.window
    return 4 * rows, 4 * columns


def _attention_flops(site: Site, size: tuple[int, int]) -> float:
    if not isinstance(site.module, WindowSite):
        return 0.0
    geometry = site.module.geometry
    per_token = 2.0 * geometry.heads * site.tokens * (geometry.head_dim + geometry.value_dim)
    return per_token * size[0] * size[1]
