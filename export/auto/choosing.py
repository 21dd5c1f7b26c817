"""The choice of a plan: measures candidates, then selects and verifies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...core.ports.port import size_text
from ...models.loading import LoadedModel
from ..attention.candidates import uniform_plans
from ..attention.mechanism import Mechanism
from ..load.images import Images
from .changes import measure_changes
from .costs import CostTable
from .eta import Eta
from .knapsack import Item, Items, Selection
from .reasons import with_reasons
from .record import Record
from .result import AutoResult
from .search import Search, most_plans
from .timing import Calls
from .verification import Verified, Verifier

Candidates = Mapping[str, Sequence[Mechanism]]
"""Path of a site -> its candidates, as trained first."""


@dataclass(frozen=True)
class Offer:
    """The input of a choice.

    Attributes:
        loaded: The network.
        images: The images for the choice and the verification.
        budget: The required dB against the network as trained.
        candidates: The candidates of every site that are faster there.
        costs: Their times.
        calls: The calls of the sites.
    """

    loaded: LoadedModel
    images: Images
    budget: float
    candidates: Candidates
    costs: CostTable
    calls: Calls

    @property
    def is_empty(self) -> bool:
        """Whether every site has its trained attention as the only candidate."""
        return all(len(row) == 1 for row in self.candidates.values())

    @property
    def mechanisms(self) -> dict[str, Mechanism]:
        """Text of a candidate -> the candidate."""
        return {str(each): each for row in self.candidates.values() for each in row}

    def items(self, changes: Mapping[str, Mapping[str, float]]) -> dict[str, list[Item]]:
        """Return the candidates with their times, and their changes alone.

        Args:
            changes: Path of a site -> text of the candidate -> change.
        """
        return {
            path: [
                Item(
                    str(each), self.costs.cost(self.calls.of[path], each), changes[path][str(each)]
                )
                for each in row
            ]
            for path, row in self.candidates.items()
        }


def keep_trained(offer: Offer, why: str) -> AutoResult:
    """Return the plan that changes nothing, without measurements.

    Args:
        offer: The network; its only candidates are those as trained.
        why: Why there are no others.
    """
    options = offer.items({path: {str(row[0]): 0.0} for path, row in offer.candidates.items()})
    choice = {path: row[0] for path, row in options.items()}
    return _result(offer, options, choice, Verified(0.0, 0.0), idle=why)


def choose(offer: Offer, record: Record, progress: Callable[[str], None]) -> AutoResult:
    """Return the fastest plan found that keeps the budget.

    Args:
        offer: The candidates.
        record: Earlier measurements, to which new ones are added.
        progress: Called with progress messages.
    """
    seen, starts = offer.images.seen, uniform_plans(offer.candidates)
    plan_work, second_pass = len(offer.images.samples), _second_pass(offer)
    eta = Eta(progress)
    eta.left = (1 + most_plans(len(starts))) * plan_work + second_pass
    changes = measure_changes(
        offer.loaded.network, offer.loaded.facts, seen, offer.candidates, record, eta
    )
    eta.announce("run the network as trained on the calibration images")
    verifier = Verifier(offer.loaded.network, offer.loaded.facts, offer.images)
    eta.done(plan_work)
    options = offer.items(changes)
    uniform = {
        name: {path: _option(options[path], str(each)) for path, each in sites.items()}
        for name, sites in starts.items()
    }
    search = _search(options, offer, verifier, eta)
    choice = search.run(uniform.values())
    return _result(
        offer,
        options,
        choice,
        search.verify(choice),
        uniform={name: (start, search.verify(start)) for name, start in uniform.items()},
        tried=tuple(search.tried),
    )


def _result(
    offer: Offer,
    options: Items,
    choice: Selection,
    verified: Verified,
    uniform: Mapping[str, tuple[Selection, Verified]] | None = None,
    tried: tuple[tuple[Selection, Verified], ...] = (),
    idle: str = "",
) -> AutoResult:
    return AutoResult(
        loaded=offer.loaded,
        images=offer.images,
        budget=offer.budget,
        options=options,
        choice=choice,
        plan=with_reasons(options, choice, offer.mechanisms),
        mechanisms=offer.mechanisms,
        verified=verified,
        uniform=uniform or {},
        tried=tried,
        timed=size_text(offer.calls.size),
        idle=idle,
    )


def _second_pass(offer: Offer) -> float:
    """Return the work of a second pass over all sites, half of the network each."""
    return len(offer.images.seen) * (1.0 + len(offer.candidates) / 2)


def _option(row: Sequence[Item], name: str) -> Item:
    return next(option for option in row if option.name == name)


def _search(options: Items, offer: Offer, verifier: Verifier, eta: Eta) -> Search:
    plan_work, second_pass = len(offer.images.samples), _second_pass(offer)
    mechanisms, verified, shared = offer.mechanisms, 0, False

    def plan(choice: Selection) -> dict[str, Mechanism]:
        return {path: mechanisms[option.name] for path, option in choice.items()}

    def expect(plans: int) -> None:
        eta.left = plans * plan_work + (0.0 if shared else second_pass)

    def verify(choice: Selection) -> Verified:
        nonlocal verified
        wanted = plan(choice)
        if verifier.knows(wanted):
            return verifier(wanted)
        verified += 1
        eta.announce(f"verify plan {verified}")
        found = verifier(wanted)
        eta.done(plan_work)
        return found

    def shares(choice: Selection) -> Mapping[str, float]:
        nonlocal shared
        shared, before = True, eta.left
        found = verifier.shares(plan(choice), second)
        eta.left = max(before - second_pass, 0.0)
        return found

    def second(text: str, work: float) -> None:
        eta.announce(f"second pass: {text}")
        eta.done(work)

    return Search(options, 10.0 ** (-offer.budget / 10.0), verify, shares, expect)
