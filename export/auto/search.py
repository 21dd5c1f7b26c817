"""``--attn auto``: the fastest uniform plan that keeps a limit of change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...core.json_text import json_number
from ...core.ports.port import size_text
from ...runtime.metrics.measures import decibels
from ..attention.candidates import candidates
from ..attention.implementation import as_trained
from ..attention.mechanism import Mechanism
from ..attention.plan import Plan
from ..attention.site import find_sites
from ..auto_options import DEFAULT_BUDGET, AutoOptions, Proposal
from ..load.stage import Prepared
from ..progress import Progress
from ..targets import TENSORRT
from .costs import find_costs
from .trials import Sites, Trials, choose_timed_size

LEAST_GAIN = 1.1
"""Speedup over the attention as trained that a plan needs: less is within the noise of timing."""

LEAST_ON_A_GPU = 32 * 32
"""Tokens of a window from which linear attention has fewer instructions on a GPU; not measured."""

TRAINED = "as trained"


@dataclass(frozen=True, eq=False)
class UniformPlan:
    """One mechanism at every site that it supports.

    Attributes:
        name: The mechanism in text.
        sites: Path of each site -> its mechanism.
        seconds: Seconds of all sites.
        seen: Mean squared change of the output, the range taken as 1, of the images of the choice.
        held_out: The same of the held-out images.
    """

    name: str
    sites: Sites
    seconds: float
    seen: float = 0.0
    held_out: float = 0.0

    @property
    def decibels(self) -> float:
        """PSNR against the network as trained, of the worse part of the images."""
        return decibels(max(self.seen, self.held_out))

    def figures(self) -> dict[str, float | None]:
        """Return the JSON form."""
        return {
            "attention_seconds": self.seconds,
            "psnr_seen": json_number(decibels(self.seen)),
            "psnr_held_out": json_number(decibels(self.held_out)),
        }


def find_plan(prepared: Prepared, options: AutoOptions, progress: Progress) -> Proposal:
    """Return the fastest plan found that keeps the budget.

    Args:
        prepared: The network and its images.
        options: The options other than the budget.
        progress: Called with progress messages.

    Raises:
        NystraError: A bad table of costs.
    """
    images = prepared.images
    trials = Trials(prepared)
    every = site_plans(prepared, options.keep_full)
    progress(f"time the attention of {len(every)} plans")
    costs, warnings = find_costs(options.costs, trials, every)
    trained = UniformPlan(TRAINED, every.pop(TRAINED), costs[TRAINED])
    faster = [name for name in every if costs[name] * LEAST_GAIN <= trained.seconds]
    plans = []
    for number, name in enumerate(faster, 1):
        progress(f"{number}/{len(faster)} try {name}")
        sites = every[name]
        changes = trials.changes(sites)
        plans.append(UniformPlan(name, sites, costs[name], **changes))
    budget = prepared.options.min_psnr or DEFAULT_BUDGET
    chosen = choose(trained, plans, budget)
    if images.coarse:
        warnings.append(
            "the network is large: `mechanism` auto tried some of the candidates, on one "
            "crop of each image"
        )
    if chosen is trained:
        warnings.append(f"`mechanism` auto keeps the attention as trained: {_why(plans, budget)}")
        summary = f"no faster plan reaches {budget:g} dB" if plans else "no plan is faster"
    else:
        size = size_text(choose_timed_size(prepared.loaded.facts))
        summary = (
            f"{chosen.name}: mean {decibels(chosen.seen):.1f} dB of the images that it was chosen "
            f"on, {decibels(chosen.held_out):.1f} dB on {', '.join(images.held_out_images)}, held "
            f"out (wanted {budget:g} in the mean); attention alone "
            f"{trained.seconds / chosen.seconds:.2f}x as fast as trained ({size}, in PyTorch)"
        )
    figures = {
        "min_psnr": budget,
        "held_out": list(images.held_out_images),
        "attention_seconds_as_trained": trained.seconds,
        "verified": len(plans) + 1,
        "plans": {"chosen": chosen.figures()}
        | {f"{plan.name} everywhere": plan.figures() for plan in plans},
    }
    reasoned = _with_reasons(trained, chosen)
    return Proposal(reasoned, summary, figures, tuple(warnings))


def site_plans(prepared: Prepared, keep_full: Sequence[str]) -> dict[str, Sites]:
    """Return the plan as trained, and one for each candidate with it where it is supported.

    Args:
        prepared: The network. For TensorRT small windows stay as trained: times are taken on this
            machine's CPU and do not rank what a GPU runs.
        keep_full: Sites that stay as trained.
    """
    trained: dict[str, Mechanism] = {}
    changed: dict[Mechanism, dict[str, Mechanism]] = {}
    for site in find_sites(prepared.loaded.network):
        trained[site.path] = as_trained(site.module)
        is_small = (site.tokens or LEAST_ON_A_GPU) < LEAST_ON_A_GPU
        if site.path in keep_full or (is_small and prepared.options.target == TENSORRT):
            continue
        served = candidates(site, coarse=prepared.images.coarse)
        for candidate, at_site in served.items():
            changed.setdefault(candidate, {})[site.path] = at_site
    plans: dict[str, Sites] = {TRAINED: trained}
    for candidate, sites in changed.items():
        plan = trained | sites
        if plan not in plans.values():  # no site has room for more
            plans[str(candidate)] = plan
    return plans


def choose(trained: UniformPlan, plans: Sequence[UniformPlan], budget: float) -> UniformPlan:
    """Return the fastest plan that stays above a limit in dB, or the one as trained."""
    within = [plan for plan in plans if plan.decibels >= budget]
    return min((*within, trained), key=lambda plan: plan.seconds)


def _why(plans: Sequence[UniformPlan], budget: float) -> str:
    """Return why no plan was chosen."""
    if not plans:
        return (
            f"no candidate is {LEAST_GAIN:g} times as fast as trained on this machine (for a GPU, "
            "where windows are large enough), so none was tried on images"
        )
    best = max(plans, key=lambda plan: plan.decibels)
    return (
        f"no plan that was tried reaches {budget:g} dB; {best.name} at every site has "
        f"{best.decibels:.1f} dB. Use a lower `min_psnr` to allow more plans"
    )


def _with_reasons(trained: UniformPlan, chosen: UniformPlan) -> Plan:
    changed = (
        f"{chosen.decibels:.1f} dB with it everywhere, attention in {1e3 * chosen.seconds:.3g} of "
        f"{1e3 * trained.seconds:.3g} ms"
    )
    sites: dict[str, Mechanism] = {}
    for path, mechanism in chosen.sites.items():
        reason = changed if mechanism != trained.sites[path] else TRAINED
        sites[path] = replace(mechanism, reason=reason)
    return Plan(sites=sites)
