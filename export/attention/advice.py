"""Warnings about a plan, and advice if its accuracy drop is too large."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from torch import nn

from ...core.text import first_named, pluralize
from ...models.loading import LoadedModel
from .as_trained.parameters import AsTrained
from .full.parameters import Full
from .implementation import find_unsupported_reason, find_untrained
from .mechanism import Mechanism
from .performer.parameters import Performer
from .plan import Plan
from .registry import MECHANISMS, mechanism
from .site import Site, find_sites


def plan_warnings(
    plan: Plan,
    loaded: LoadedModel,
    resolved: Mapping[str, Mechanism],
    unchanged: Collection[str] = (),
) -> list[str]:
    """Return the warnings about a plan, one sentence each.

    Args:
        plan: As requested.
        loaded: The network.
        resolved: Mechanism of every site.
        unchanged: Paths of the sites whose nodes are not replaced, which is said elsewhere.
    """
    sites = find_sites(loaded.network)
    return [
        *_another_checkpoint(plan, loaded.checkpoint.sha256),
        *_describe_dropped_biases(sites, resolved),
        *_not_faster(plan, sites, resolved),
        *_describe_unchanged(
            plan, [site for site in sites if site.path not in unchanged], resolved
        ),
    ]


def _another_checkpoint(plan: Plan, sha256: str) -> list[str]:
    if plan.source_sha256 in ("", sha256):
        return []
    made_for = plan.source_sha256[:12]
    this = sha256[:12]
    return [f"the plan was made for another checkpoint ({made_for}..., this one is {this}...)"]


def _describe_dropped_biases(sites: Iterable[Site], resolved: Mapping[str, Mechanism]) -> list[str]:
    dropping = [site for site in sites if not resolved[site.path].keeps_bias]
    biases = [site.bias_size for site in dropping if site.bias_size is not None]
    if not biases:
        return []
    largest = f"(largest entry {max(biases):.2f} in logits)"
    return [f"the relative position bias of {pluralize(len(biases), 'site')} is dropped {largest}"]


def _not_faster(plan: Plan, sites: Iterable[Site], resolved: Mapping[str, Mechanism]) -> list[str]:
    """Return a warning about given and usual settings; chosen ones take fewer operations."""
    small = {}
    for site in sites:
        planned = plan.at(site.path)
        if site.tokens is None or resolved[site.path].name != planned.name:
            continue
        if why := planned.why_not_faster(site.tokens):
            small[site.path] = why
    if not small:
        return []
    path, why = next(iter(small.items()))
    text = f"linear attention cannot be faster at {pluralize(len(small), 'site')}: {why} at {path}"
    return [f"{text}; exact attention takes fewer operations there"]


def _describe_unchanged(
    plan: Plan, sites: Iterable[Site], resolved: Mapping[str, Mechanism]
) -> list[str]:
    groups: dict[str, list[str]] = {}
    for site in sites:
        planned = plan.at(site.path)
        chosen = resolved[site.path]
        reason = find_unsupported_reason(planned, site.module) or chosen.reason
        if chosen.name != planned.name and reason:
            groups.setdefault(reason, []).append(site.path)
    warnings = []
    for reason, paths in sorted(groups.items()):
        own = "the attention they were trained with"
        as_trained = any(isinstance(resolved[path], AsTrained) for path in paths)
        what = "full attention"
        if as_trained:
            what = own
        where = f"{pluralize(len(paths), 'site')} ({first_named(paths)})"
        warnings.append(f"{where} with {what}: {reason}")
    return warnings


def improvements(network: nn.Module, resolved: Mapping[str, Mechanism], worst: str) -> str:
    """Return what to try if the accuracy drop is too large, for the site with the largest error.

    Args:
        network: The loaded network.
        resolved: Mechanism of every site.
        worst: Path of the site with the largest error.
    """
    site = next(site for site in find_sites(network) if site.path == worst)
    planned = resolved[worst]
    others = [mechanism(name) for name in MECHANISMS if name != planned.name]
    served = [
        f"`mechanism` {other.name}"
        for other in others
        if not isinstance(other, (Full, AsTrained, Performer))  # meant for networks trained with it
        and not find_unsupported_reason(other, site.module)
        and not find_untrained(other, site.module)
    ]
    tries = [f"full attention there (`keep_full` {worst})"]
    advice = [planned.advice] if planned.advice else []
    return ", ".join([*tries, *advice, *served])
