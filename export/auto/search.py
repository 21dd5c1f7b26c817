"""The search: select, correct, select again, repair, improve; every plan is verified."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from .knapsack import Items, Selection, change, faster_swaps, fastest, safer_swaps, seconds
from .verification import Verified

ROUNDS = 6
"""Largest number of rounds; each corrects its budget by the measured change of the previous
round."""

_TRIES = 8
"""Failed improvements after which the search stops."""

_RATIOS = (0.1, 10.0)
"""Limit of the second pass's correction to the change that was measured for a site alone."""


def most_plans(starts: int) -> int:
    """Return the approximate largest number of plans that a search verifies.

    Args:
        starts: Plans that it tries first.
    """
    return 2 + starts + ROUNDS + _TRIES


def names(choice: Selection) -> dict[str, str]:
    """Return the text of the candidate of every site."""
    return {path: option.name for path, option in choice.items()}


@dataclass
class Search:
    """The state of a search.

    Attributes:
        options: Options of every site, the one as trained first.
        budget: Mean-square change that a plan may make.
        verify: Runs a whole plan.
        shares: Selection -> contribution of each site to its change, for the second pass.
        expect: Called before each verified plan with the approximate number of remaining ones.
        tried: Every choice that was verified, in order.
        best: The fastest that keeps the budget.
    """

    options: Items
    budget: float
    verify: Callable[[Selection], Verified]
    shares: Callable[[Selection], Mapping[str, float]]
    expect: Callable[[int], None] = lambda _: None
    tried: list[tuple[Selection, Verified]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._to_come = most_plans(0)
        self.best: Selection = {path: row[0] for path, row in self.options.items()}
        self.try_out(self.best)

    def run(self, starts: Iterable[Selection] = ()) -> Selection:
        """Return the fastest choice found that keeps the budget.

        Args:
            starts: Choices to try first: the result is at least as fast as those that keep the
                budget.
        """
        starts = list(starts)
        self._to_come = most_plans(len(starts)) - 1
        for start in starts:
            self.try_out(start)
        choice = fastest(self.options, self.budget)
        verified = self.try_out(choice)
        self._correct(choice, verified)
        wanted = self.budget
        for _ in range(ROUNDS):
            choice = fastest(self.options, wanted)
            known = any(names(choice) == names(former) for former, _ in self.tried)
            verified = self.try_out(choice)
            if known or verified.worst == 0.0:
                break
            wanted = change(choice) * self.budget / verified.worst
        self._to_come = _TRIES
        self._repair(choice, verified)
        self._improve()
        return self.best

    def try_out(self, choice: Selection) -> Verified:
        """Verify a choice; it is the best if it keeps the budget and is faster than the last."""
        self.expect(self._to_come)
        verified = self.verify(choice)
        self._to_come = max(self._to_come - 1, 1)
        self.tried.append((choice, verified))
        if verified.worst <= self.budget and seconds(choice) < seconds(self.best):
            self.best = choice
        return verified

    def _correct(self, choice: Selection, verified: Verified) -> None:
        """Scale the changes of each site, and of all, to those in a whole plan."""
        ratios = {
            path: min(max(share / choice[path].change, _RATIOS[0]), _RATIOS[1])
            for path, share in self.shares(choice).items()
            if choice[path].change > 0.0
        }
        together = sum(option.change * ratios.get(path, 1.0) for path, option in choice.items())
        if together <= 0.0 or verified.worst <= 0.0:
            return
        scale = verified.worst / together
        self.options = {
            path: [
                replace(option, change=option.change * ratios.get(path, 1.0) * scale)
                for option in row
            ]
            for path, row in self.options.items()
        }
        kept = names(self.best)
        self.best = {
            path: next(option for option in row if option.name == kept[path])
            for path, row in self.options.items()
        }

    def _repair(self, choice: Selection, verified: Verified) -> None:
        """Undo the options with the most change per second until the budget is kept."""
        while verified.worst > self.budget:
            path, option = safer_swaps(self.options, choice)[0]
            choice = choice | {path: option}
            if seconds(choice) >= seconds(self.best):
                return
            verified = self.try_out(choice)

    def _improve(self) -> None:
        """Take faster options while the whole plan keeps the budget."""
        vain: set[tuple[str, str]] = set()
        while len(vain) < _TRIES:
            slack = self.budget - self.verify(self.best).worst
            swap = next(
                (
                    (path, option)
                    for path, option in faster_swaps(self.options, self.best)
                    if (path, option.name) not in vain
                    and option.change - self.best[path].change <= slack
                ),
                None,
            )
            if swap is None:
                return
            path, option = swap
            self._to_come = _TRIES - len(vain)
            if self.try_out(self.best | {path: option}).worst > self.budget:
                vain.add((path, option.name))
