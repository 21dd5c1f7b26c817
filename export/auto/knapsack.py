"""The fastest choice of one option per site whose changes add up to at most a budget.

A multiple-choice knapsack: each site takes the option of the least ``change + price x seconds``,
the price is bisected to the budget, and the rest of the budget is spent greedily. Ties are broken
by the order of the options, so that the same numbers give the same choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_BISECTIONS = 100
_PRICES = (-60.0, 60.0)
"""Powers of two around the ratio of all changes to all seconds."""


@dataclass(frozen=True)
class Item:
    """An option of a site.

    Attributes:
        name: Text of the candidate.
        seconds: Its time.
        change: Its mean-square change of the output.
    """

    name: str
    seconds: float
    change: float


Items = Mapping[str, Sequence[Item]]
Selection = dict[str, Item]


def seconds(choice: Selection) -> float:
    """Return the total time of the options of a choice."""
    return sum(option.seconds for option in choice.values())


def change(choice: Selection) -> float:
    """Return the total change of the options of a choice, if changes add up."""
    return sum(option.change for option in choice.values())


def fastest(options: Items, budget: float) -> Selection:
    """Return a fast choice within the budget.

    Args:
        options: Options of every site; one of them changes nothing.
        budget: Limit of the sum of the changes.
    """
    scale = max((option.change for row in options.values() for option in row), default=0.0)
    scale /= max((option.seconds for row in options.values() for option in row), default=1.0) or 1.0
    low, high = _PRICES
    best = _at_price(options, (scale or 1.0) * 2.0**low)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        choice = _at_price(options, (scale or 1.0) * 2.0**middle)
        if change(choice) <= budget:
            best, low = choice, middle
        else:
            high = middle
    if change(best) > budget:
        best = {path: min(row, key=lambda option: option.change) for path, row in options.items()}
    return _spend(options, best, budget)


def _at_price(options: Items, price: float) -> Selection:
    return {
        path: min(row, key=lambda option: option.change + price * option.seconds)
        for path, row in options.items()
    }


def _spend(options: Items, choice: Selection, budget: float) -> Selection:
    """Return the choice with faster options for the rest of the budget, the best first."""
    choice = dict(choice)
    while swaps := [
        (path, option)
        for path, option in faster_swaps(options, choice)
        if change(choice) - choice[path].change + option.change <= budget
    ]:
        path, option = swaps[0]
        choice[path] = option
    return choice


def faster_swaps(options: Items, choice: Selection) -> list[tuple[str, Item]]:
    """Return every faster option of every site, sorted by change per saved second."""
    swaps = [
        (path, option)
        for path, row in options.items()
        for option in row
        if option.seconds < choice[path].seconds
    ]

    def price(swap: tuple[str, Item]) -> float:
        path, option = swap
        return (option.change - choice[path].change) / (choice[path].seconds - option.seconds)

    return sorted(swaps, key=price)


def safer_swaps(options: Items, choice: Selection) -> list[tuple[str, Item]]:
    """Return every option that changes less, sorted by avoided change per additional second."""
    swaps = [
        (path, option)
        for path, row in options.items()
        for option in row
        if option.change < choice[path].change
    ]

    def gain(swap: tuple[str, Item]) -> float:
        path, option = swap
        slower = max(option.seconds - choice[path].seconds, 1e-12)
        return (choice[path].change - option.change) / slower

    return sorted(swaps, key=gain, reverse=True)
