"""The result of a search: its summary, its JSON form, and the data of its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core.json_text import json_number
from ...models.loading import LoadedModel
from ...runtime.metrics.measures import decibels
from ..attention.mechanism import Mechanism
from ..load.images import Images
from .knapsack import Items, Selection, seconds
from .verification import Verified


@dataclass(frozen=True, kw_only=True)
class AutoResult:
    """The chosen plan, and its candidates.

    Attributes:
        loaded: The network.
        images: The images for the choice and the verification.
        budget: The required dB against the network as trained.
        options: Options of every site, the one as trained first, each with its change alone.
        choice: The plan.
        plan: The same as mechanisms with their reasons.
        mechanisms: Name of an option -> its mechanism.
        verified: The whole plan on the images.
        uniform: Candidate -> plan with it at every site that supports it, and that plan on the
            images.
        tried: Every plan that was verified.
        timed: Height and width of the image at which attention was timed, such as ``128x128``.
        idle: Why nothing was measured on images, or "".
    """

    loaded: LoadedModel
    images: Images
    budget: float
    options: Items
    choice: Selection
    plan: Mapping[str, Mechanism]
    mechanisms: Mapping[str, Mechanism]
    verified: Verified
    uniform: Mapping[str, tuple[Selection, Verified]]
    tried: tuple[tuple[Selection, Verified], ...]
    timed: str
    idle: str = ""

    @property
    def trained(self) -> Selection:
        """The plan that changes nothing."""
        return {path: row[0] for path, row in self.options.items()}

    @property
    def changes_nothing(self) -> bool:
        """Whether every site stays as trained."""
        return seconds(self.choice) == seconds(self.trained)

    def summary(self) -> str:
        """Return the plan's figures in one line."""
        if self.idle:
            return "no plan is faster"
        if self.changes_nothing:
            return f"no faster plan reaches {self.budget:g} dB"
        return (
            f"mean {_db(self.verified.seen)} of the images that it was chosen on, "
            f"{_db(self.verified.held_out)} on {', '.join(self.images.held_out_images)}, "
            f"held out (wanted {self.budget:g} in the mean); attention alone "
            f"{seconds(self.trained) / seconds(self.choice):.2f}x as fast as trained "
            f"({self.timed}, in PyTorch)"
        )

    def warnings(self) -> tuple[str, ...]:
        """Return the warnings, one sentence each."""
        words = []
        if self.changes_nothing:
            words.append(f"`mechanism` auto keeps the attention as trained: {self._why}")
        if self.images.coarse:
            words.append(
                "the network is large: `mechanism` auto tried some of the candidates, on one "
                "crop of each image"
            )
        return tuple(words)

    @property
    def _why(self) -> str:
        """Why every site stays as trained."""
        if self.idle:
            return self.idle
        name, (_, verified) = max(self.uniform.items(), key=lambda entry: entry[1][1].psnr)
        return (
            f"no plan that was tried reaches {self.budget:g} dB; {name} at every site has "
            f"{_db(verified.worst)}. Use a lower `min_psnr` to allow more plans"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        plans = {"chosen": (self.choice, self.verified)}
        plans |= {f"{name} everywhere": plan for name, plan in self.uniform.items()}
        return {
            "min_psnr": self.budget,
            "held_out": list(self.images.held_out_images),
            "attention_seconds_as_trained": seconds(self.trained),
            "verified": len(self.tried),
            "plans": {
                name: {
                    "attention_seconds": seconds(choice),
                    "psnr_seen": json_number(decibels(verified.seen)),
                    "psnr_held_out": json_number(decibels(verified.held_out)),
                }
                for name, (choice, verified) in plans.items()
            },
        }


def _db(change: float) -> str:
    return f"{decibels(change):.1f} dB" if change > 0.0 else "no change"
