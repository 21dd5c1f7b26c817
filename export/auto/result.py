"""The result of a search, in words and in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...core.json_text import json_number
from ...runtime.metrics.measures import decibels
from ..attention.mechanism import Mechanism
from ..load.images import Images
from .trials import Tried

Choice = tuple[int, ...]
"""The number of the option of each class."""


@dataclass(frozen=True)
class SiteClass:
    """Sites with equal calls.

    Attributes:
        paths: The sites.
        options: The mechanisms to choose from, as trained first.
        seconds: Time of all its sites with each option.
    """

    paths: tuple[str, ...]
    options: tuple[Mechanism, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes:
        choice: The fastest choice that kept the budget.
        alone: Class and option -> change with that class alone replaced.
        uniform: Candidate -> the choice of it at all classes that support it.
        tried: Every choice that was run.
    """

    choice: Choice
    alone: dict[tuple[int, int], float]
    uniform: dict[str, Choice]
    tried: dict[Choice, Tried]


def time_of(classes: Sequence[SiteClass], choice: Choice) -> float:
    """Return the time of attention with a choice, in seconds."""
    return sum(row.seconds[option] for row, option in zip(classes, choice, strict=False))


@dataclass(frozen=True)
class AutoResult:
    """What a search says about its choice.

    Attributes:
        classes: The classes and their options.
        found: The choice, and every choice that was run.
        budget: The required dB against the network as trained.
        images: The images for the choice and the verification.
        timed: Height and width of the image at which attention was timed, such as ``128x128``.
        idle: Why nothing was measured on images, or "".
    """

    classes: Sequence[SiteClass]
    found: Found
    budget: float
    images: Images
    timed: str
    idle: str

    @property
    def _trained(self) -> float:
        """Time of attention as trained."""
        return sum(row.seconds[0] for row in self.classes)

    @property
    def _verified(self) -> Tried:
        return self.found.tried.get(self.found.choice, Tried(0.0, 0.0))

    @property
    def _changes_nothing(self) -> bool:
        return not any(self.found.choice)

    def plan(self) -> dict[str, Mechanism]:
        """Return the mechanism of every site with its reason, in the order of the network."""
        return {
            path: replace(row.options[self.found.choice[at]], reason=self._reason(at))
            for at, row in enumerate(self.classes)
            for path in row.paths
        }

    def _reason(self, at: int) -> str:
        """Return why a class has its mechanism: change, time, and the next faster candidate."""
        row, taken = self.classes[at], self.found.choice[at]
        change, seconds = self.found.alone, row.seconds
        count = len(row.paths)
        only = "this site" if count == 1 else f"these {count} sites"
        what = f"{self._db(at, taken)} with only {only} replaced" if taken else "as trained"
        text = f"{what}, {_ms(seconds[taken])} of {_ms(seconds[0])} ms"
        if len(row.options) == 1:
            return f"{text}; no other candidate for the site is faster"
        faster = [option for option, time in enumerate(seconds) if time < seconds[taken]]
        if not faster:
            return f"{text}; none is faster"
        step = min(
            faster,
            key=lambda option: (
                (change[at, option] - change[at, taken]) / (seconds[taken] - seconds[option])
            ),
        )
        after = f"{row.options[step]}, {self._db(at, step)}, {_ms(seconds[step])} ms"
        return f"{text}; next faster: {after}"

    def _db(self, at: int, option: int) -> str:
        return _db(self.found.alone[at, option], "nothing")

    def summary(self) -> str:
        """Return the plan's figures in one line."""
        if self.idle:
            return "no plan is faster"
        if self._changes_nothing:
            return f"no faster plan reaches {self.budget:g} dB"
        ratio = self._trained / time_of(self.classes, self.found.choice)
        return (
            f"mean {_db(self._verified.seen)} of the images that it was chosen on, "
            f"{_db(self._verified.held_out)} on {', '.join(self.images.held_out_images)}, "
            f"held out (wanted {self.budget:g} in the mean); attention alone {ratio:.2f}x as fast "
            f"as trained ({self.timed}, in PyTorch)"
        )

    def warnings(self) -> tuple[str, ...]:
        """Return the warnings, one sentence each."""
        words = []
        if self._changes_nothing:
            words.append(f"`mechanism` auto keeps the attention as trained: {self._why()}")
        if self.images.coarse:
            words.append(
                "the network is large: `mechanism` auto tried some of the candidates, on one "
                "crop of each image"
            )
        return tuple(words)

    def _why(self) -> str:
        """Return why every site stays as trained."""
        if self.idle:
            return self.idle
        tried, uniform = self.found.tried, self.found.uniform
        name = min(uniform, key=lambda each: tried[uniform[each]].worst)
        return (
            f"no plan that was tried reaches {self.budget:g} dB; {name} at every site has "
            f"{_db(tried[uniform[name]].worst)}. Use a lower `min_psnr` to allow more plans"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        plans = {"chosen": (self.found.choice, self._verified)}
        plans |= {
            f"{name} everywhere": (choice, self.found.tried[choice])
            for name, choice in self.found.uniform.items()
        }
        return {
            "min_psnr": self.budget,
            "held_out": list(self.images.held_out_images),
            "attention_seconds_as_trained": self._trained,
            "verified": len(self.found.tried),
            "plans": {
                name: {
                    "attention_seconds": time_of(self.classes, choice),
                    "psnr_seen": json_number(decibels(tried.seen)),
                    "psnr_held_out": json_number(decibels(tried.held_out)),
                }
                for name, (choice, tried) in plans.items()
            },
        }


def _db(change: float, none: str = "no change") -> str:
    return f"{decibels(change):.1f} dB" if change > 0.0 else none


def _ms(seconds: float) -> str:
    value = 1e3 * seconds
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
