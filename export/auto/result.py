"""The result of a search, in words and in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...core.json_text import json_number
from ...runtime.metrics.measures import decibels
from ..attention.plan import Plan
from ..auto_options import Proposal
from ..load.images import Images
from .trials import Tried, UniformPlan


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes:
        trained: The plan as trained.
        chosen: The fastest plan that kept the budget.
        tried: The changes by every other plan.
    """

    trained: UniformPlan
    chosen: UniformPlan
    tried: Mapping[UniformPlan, Tried]


def describe(found: Found, budget: float, images: Images, timed: str, idle: str) -> Proposal:
    """Return the plan with the reason of each site, and what a search says about it.

    Args:
        found: The plan, and every plan that was run.
        budget: The required dB against the network as trained.
        images: The images for the choice and the verification.
        timed: Height and width of the image at which attention was timed, such as ``128x128``.
        idle: Why nothing was measured on images, or "".
    """
    trained, chosen = found.trained, found.chosen
    verified = found.tried.get(chosen, Tried(0.0, 0.0))
    plans = {"chosen": _figures(chosen, verified)}
    for plan, tried in found.tried.items():
        plans[f"{plan.name} everywhere"] = _figures(plan, tried)
    figures = {
        "min_psnr": budget,
        "held_out": list(images.held_out_images),
        "attention_seconds_as_trained": trained.time(),
        "verified": len(found.tried) + 1,
        "plans": plans,
    }
    warnings = []
    if chosen is trained:
        summary = "no plan is faster" if idle else f"no faster plan reaches {budget:g} dB"
        why = idle or _none_reaches(found, budget)
        warnings.append(f"`mechanism` auto keeps the attention as trained: {why}")
    else:
        ratio = trained.time() / chosen.time()
        summary = (
            f"{chosen.name}: mean {_db(verified.seen)} of the images that it was chosen on, "
            f"{_db(verified.held_out)} on {', '.join(images.held_out_images)}, "
            f"held out (wanted {budget:g} in the mean); attention alone {ratio:.2f}x as fast "
            f"as trained ({timed}, in PyTorch)"
        )
    if images.coarse:
        warnings.append(
            "the network is large: `mechanism` auto tried some of the candidates, on one "
            "crop of each image"
        )
    sites = {
        path: replace(mechanism, reason=_reason(found, path))
        for path, mechanism in chosen.sites.items()
    }
    return Proposal(Plan(sites=sites), summary, figures, tuple(warnings))


def _figures(plan: UniformPlan, tried: Tried) -> dict[str, float | str | None]:
    return {
        "attention_seconds": plan.time(),
        "psnr_seen": json_number(decibels(tried.seen)),
        "psnr_held_out": json_number(decibels(tried.held_out)),
    }


def _reason(found: Found, path: str) -> str:
    """Return why a site has its mechanism."""
    trained, chosen = found.trained, found.chosen
    own = f"{_ms(trained.seconds[path])} ms"
    if chosen.sites[path] != trained.sites[path]:
        change = _db(found.tried[chosen].worst)
        return f"{change} with it everywhere, {_ms(chosen.seconds[path])} of {own}"
    faster = [plan for plan in found.tried if plan.sites[path] != trained.sites[path]]
    if not faster:
        return f"as trained, {own}; no candidate for the site is faster"
    return f"as trained, {own}; {len(faster)} faster candidates are in no better plan"


def _none_reaches(found: Found, budget: float) -> str:
    """Return how near the best plan comes to a budget."""
    best = min(found.tried, key=lambda plan: found.tried[plan].worst)
    return (
        f"no plan that was tried reaches {budget:g} dB; {best.name} at every site has "
        f"{_db(found.tried[best].worst)}. Use a lower `min_psnr` to allow more plans"
    )


def _db(change: float) -> str:
    return f"{decibels(change):.1f} dB" if change > 0.0 else "no change"


def _ms(seconds: float) -> str:
    value = 1e3 * seconds
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
