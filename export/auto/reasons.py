"""Why a site has its mechanism: its change, its cost, and the next faster candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...runtime.metrics.measures import decibels
from ..attention.mechanism import Mechanism
from .knapsack import Item, Items, Selection


def with_reasons(
    options: Items, choice: Selection, mechanisms: Mapping[str, Mechanism]
) -> dict[str, Mechanism]:
    """Return the mechanisms of a choice, each with its reason.

    Args:
        options: Options of every site, the one as trained first, with their changes alone.
        choice: The choice.
        mechanisms: Text of a candidate -> the candidate.
    """
    return {
        path: replace(mechanisms[option.name], reason=_reason(options[path], option.name))
        for path, option in choice.items()
    }


def _reason(row: Sequence[Item], name: str) -> str:
    taken = next(option for option in row if option.name == name)
    own = row[0]
    cost = f"{_ms(taken.seconds)} of {_ms(own.seconds)} ms"
    what = "as trained" if taken is own else f"{_db(taken.change)} with only this site replaced"
    if len(row) == 1:
        return f"{what}, {cost}; no other candidate for the site is faster"
    return f"{what}, {cost}; {_next(row, taken)}"


def _next(row: Sequence[Item], taken: Item) -> str:
    """Return the faster option with the least additional change for the time that it saves."""
    faster = [option for option in row if option.seconds < taken.seconds]
    if not faster:
        return "none is faster"
    step = min(
        faster, key=lambda option: (option.change - taken.change) / (taken.seconds - option.seconds)
    )
    return f"next faster: {step.name}, {_db(step.change)}, {_ms(step.seconds)} ms"


def _db(change: float) -> str:
    return f"{decibels(change):.1f} dB" if change > 0 else "nothing"


def _ms(seconds: float) -> str:
    value = 1e3 * seconds
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
