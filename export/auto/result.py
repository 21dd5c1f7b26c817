"""The result of a search, in words and in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...core.json_text import json_number
from ...runtime.metrics.measures import decibels
from ..attention.mechanism import Mechanism
from ..attention.plan import Plan
from ..auto_options import Proposal
from ..load.images import Images
from .trials import Choice, Tried


@dataclass(frozen=True)
class SiteClass:
    """Sites with equal calls.

    Attributes:
        paths: The sites.
        options: The mechanisms to choose from, as trained first -> seconds of all its sites.
    """

    paths: tuple[str, ...]
    options: Mapping[Mechanism, float]

    @property
    def trained(self) -> Mechanism:
        """Its attention as trained."""
        return next(iter(self.options))


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes:
        choice: The fastest choice that kept the budget.
        alone: Number of a class and option -> change with that class alone replaced.
        uniform: Text of a candidate -> the choice of it at all classes that support it.
        tried: Every choice that was run.
    """

    choice: Choice
    alone: Mapping[tuple[int, Mechanism], float]
    uniform: Mapping[str, Choice]
    tried: Mapping[Choice, Tried]


def time_of(classes: Sequence[SiteClass], choice: Choice) -> float:
    """Return the time of attention with a choice, in seconds."""
    return sum(row.options[option] for row, option in zip(classes, choice, strict=False))


def describe(
    classes: Sequence[SiteClass],
    found: Found,
    budget: float,
    images: Images,
    timed: str,
    idle: str,
) -> Proposal:
    """Return the plan with the reason of each site, and what a search says about it.

    Args:
        classes: The classes and their options.
        found: The choice, and every choice that was run.
        budget: The required dB against the network as trained.
        images: The images for the choice and the verification.
        timed: Height and width of the image at which attention was timed, such as ``128x128``.
        idle: Why nothing was measured on images, or "".
    """
    trained = tuple(row.trained for row in classes)
    verified = found.tried.get(found.choice, Tried(0.0, 0.0))
    plans = {"chosen": (found.choice, verified)}
    for name, choice in found.uniform.items():
        plans[f"{name} everywhere"] = (choice, found.tried[choice])
    as_trained = time_of(classes, trained)
    figures = {
        "min_psnr": budget,
        "held_out": list(images.held_out_images),
        "attention_seconds_as_trained": as_trained,
        "verified": len(found.tried),
        "plans": {
            name: {
                "attention_seconds": time_of(classes, choice),
                "psnr_seen": json_number(decibels(tried.seen)),
                "psnr_held_out": json_number(decibels(tried.held_out)),
            }
            for name, (choice, tried) in plans.items()
        },
    }
    warnings = []
    if found.choice == trained:
        summary = "no plan is faster" if idle else f"no faster plan reaches {budget:g} dB"
        why = idle or _none_reaches(found, budget)
        warnings.append(f"`mechanism` auto keeps the attention as trained: {why}")
    else:
        ratio = as_trained / time_of(classes, found.choice)
        summary = (
            f"mean {_db(verified.seen)} of the images that it was chosen on, "
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
        path: replace(taken, reason=_reason(row, taken, at, found))
        for at, (row, taken) in enumerate(zip(classes, found.choice, strict=True))
        for path in row.paths
    }
    return Proposal(Plan(sites=sites), summary, figures, tuple(warnings))


def _reason(row: SiteClass, taken: Mechanism, at: int, found: Found) -> str:
    """Return why a class has its mechanism: change, time, and the next faster candidate."""
    seconds, count = row.options, len(row.paths)

    def change(option: Mechanism) -> float:
        return found.alone[at, option]

    only = "this site" if count == 1 else f"these {count} sites"
    what = "as trained"
    if taken != row.trained:
        what = f"{_db(change(taken), 'nothing')} with only {only} replaced"
    text = f"{what}, {_ms(seconds[taken])} of {_ms(seconds[row.trained])} ms"
    if len(seconds) == 1:
        return f"{text}; no other candidate for the site is faster"
    faster = [option for option, time in seconds.items() if time < seconds[taken]]
    if not faster:
        return f"{text}; none is faster"
    step = min(
        faster, key=lambda each: (change(each) - change(taken)) / (seconds[taken] - seconds[each])
    )
    return f"{text}; next faster: {step}, {_db(change(step), 'nothing')}, {_ms(seconds[step])} ms"


def _none_reaches(found: Found, budget: float) -> str:
    """Return how near the best uniform plan comes to a budget."""
    change, name = min((found.tried[each].worst, name) for name, each in found.uniform.items())
    return (
        f"no plan that was tried reaches {budget:g} dB; {name} at every site has {_db(change)}. "
        "Use a lower `min_psnr` to allow more plans"
    )


def _db(change: float, none: str = "no change") -> str:
    return f"{decibels(change):.1f} dB" if change > 0.0 else none


def _ms(seconds: float) -> str:
    value = 1e3 * seconds
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
