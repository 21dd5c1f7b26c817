"""The sites of a network, and replacing their mechanisms."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from ...core.errors import NystraError, UnsupportedModelError
from ...models.sites import MapSite, PatchSite, TokenSite, WindowSite
from .as_trained.parameters import AsTrained
from .full.parameters import Full
from .implementation import (
    AnySite,
    Form,
    as_trained,
    find_unsupported_reason,
    find_untrained,
    geometry_for,
    implement,
    slower_than_exact_reason,
)
from .mechanism import Mechanism
from .plan import Plan


@dataclass(frozen=True)
class Site:
    """One place in a network where attention is computed.

    Attributes:
        path: Module path, ``layers.0.residual_group.blocks.1.attn``.
        module: The module there.
        tokens: Number of keys a query sees, N; None if it grows with the image.
    """

    path: str
    module: AnySite

    @property
    def tokens(self) -> int | None:
        """Number of keys a query sees; None if it grows with the image."""
        if isinstance(self.module, WindowSite):
            return self.module.geometry.keys
        if isinstance(self.module, TokenSite) and self.module.geometry.before is None:
            return math.prod(self.module.geometry.key_grid)
        return None

    @property
    def bias_size(self) -> float | None:
        """Largest absolute entry of the relative position bias, in logits; None without one."""
        if not isinstance(self.module, WindowSite):
            return None
        table = self.module.bias_table()
        if table is None:
            return None
        return float(table.detach().abs().max())


def find_sites(network: nn.Module) -> list[Site]:
    """Return every site of a network in the order of its modules; may be empty."""
    return [
        Site(path, module)
        for path, module in network.named_modules()
        if isinstance(module, (WindowSite, TokenSite, PatchSite, MapSite))
    ]


def common_window(network: nn.Module) -> tuple[int, ...] | None:
    """Return the window of all window sites, if it is the same."""
    sites = (site.module for site in find_sites(network))
    windows = {site.geometry.window for site in sites if isinstance(site, WindowSite)}
    if len(windows) == 1:
        return windows.pop()
    return None


def resolve(
    plan: Plan,
    network: nn.Module,
    unserved: Sequence[str] = (),
) -> dict[str, Mechanism]:
    """Return the mechanism of every site of a network under a plan.

    A site that the planned mechanism does not support, or where it is undefined (a region border
    cuts a landmark cell), stays as trained, with the reason; so does a site where exact attention
    is known to be faster, unless the plan names it. As trained is ``full`` if the network has exact
    softmax attention.

    Args:
        plan: The plan.
        network: The network with its sites.
        unserved: Why some of its attention has no site, one sentence each.

    Raises:
        NystraError: The plan names a site that the network does not have.
        UnsupportedModelError: It requests a mechanism although there is no attention to replace.
    """
    sites = find_sites(network)
    if not sites and not isinstance(plan.default, (AsTrained, Full)):
        name, advice = plan.default.name, "omit `mechanism` to export it as it was trained"
        text = f"the network has no attention that nystra replaces, so {name} does not apply"
        if unserved:
            text = f"{name} can replace no attention of the network: {'; '.join(unserved)}"
        raise UnsupportedModelError(f"{text}: {advice}; see docs/mechanisms.md")
    plan.refuse_unknown_sites([site.path for site in sites])
    resolved = {}
    for site in sites:
        planned = plan.at(site.path)
        named = site.path in plan.sites
        resolved[site.path] = _resolve_site(planned, site.module, named=named)
    return resolved


def refuse_untrained(plan: Plan, network: nn.Module) -> None:
    """Raise NystraError if a plan needs trained tensors that a site does not have."""
    for site in find_sites(network):
        planned = plan.at(site.path)
        if missing := find_untrained(planned, site.module):
            raise NystraError(
                f"{planned.name} needs tensors that were trained with the network "
                f"({', '.join(missing)}), and {site.path} has none: use a checkpoint that was "
                f"trained with {planned.name}, or a mechanism that needs no training "
                "(`mechanism` nystra, nystromformer, cluster or psal); see docs/mechanisms.md"
            )


def _resolve_site(planned: Mechanism, site: AnySite, *, named: bool) -> Mechanism:
    if isinstance(planned, AsTrained):
        return as_trained(site)
    reason = find_unsupported_reason(planned, site) or (
        "" if named else slower_than_exact_reason(planned, site)
    )
    if not reason:
        return planned.at(geometry_for(planned, site))
    own = as_trained(site)
    if isinstance(own, Full):
        return Full.instead_of(planned, reason)
    return AsTrained(reason=reason)


def neutral(network: nn.Module) -> dict[str, Mechanism]:
    """Return the network's own mechanism of every site, with which plans are compared."""
    return {site.path: as_trained(site.module) for site in find_sites(network)}


def swap(
    network: nn.Module,
    resolved: Mapping[str, Mechanism],
    form: Form = "plain",
) -> nn.Module:
    """Return a copy of a network, with shared weights, whose sites compute the plan.

    Args:
        network: Not modified.
        resolved: Mechanism of every site, from ``resolve``.
        form: ``plain`` PyTorch, or ``operator`` for tracing (one custom op a site).
    """
    tensors = [*network.parameters(), *network.buffers()]
    shared = {id(tensor): tensor for tensor in tensors}
    swapped = copy.deepcopy(network, shared)
    for site in find_sites(swapped):
        chosen: Any = implement(resolved[site.path], site.module, form)
        site.module.implementation = chosen
    return swapped
