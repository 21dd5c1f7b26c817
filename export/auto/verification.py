"""Verifies whole plans on all images, including held-out ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...models.facts import Facts
from ...runtime.metrics.measures import decibels
from ..attention.mechanism import Mechanism
from ..attention.site import neutral, swap
from ..load.images import Feeds, Images
from .changes import Difference
from .replay import Replay


@dataclass(frozen=True)
class Verified:
    """Mean-square change of the output.

    Attributes:
        seen: Mean over the images of the choice.
        held_out: Mean over the held-out images.
    """

    seen: float
    held_out: float

    @property
    def worst(self) -> float:
        """The larger one, which has to keep the budget."""
        return max(self.seen, self.held_out)

    @property
    def psnr(self) -> float:
        """The worst in dB."""
        return decibels(self.worst)


class Verifier:
    """Runs plans against the network as trained."""

    def __init__(self, network: nn.Module, facts: Facts, images: Images) -> None:
        self._network, self._images = network, images
        self._difference = Difference(facts)
        self._exact = self._outputs(neutral(network))
        self._known: dict[tuple[str, ...], Verified] = {}

    def knows(self, plan: Mapping[str, Mechanism]) -> bool:
        """Return whether a plan was run before."""
        return _key(plan) in self._known

    def __call__(self, plan: Mapping[str, Mechanism]) -> Verified:
        """Return the change of a plan; each plan is run once."""
        key = _key(plan)
        if key not in self._known:
            changes = {
                name: self._difference(output, self._exact[name])
                for name, output in self._outputs(plan).items()
            }
            held = [changes[name] for name in self._images.held_out]
            seen = [changes[name] for name in self._images.seen]
            self._known[key] = Verified(sum(seen) / len(seen), sum(held) / len(held))
        return self._known[key]

    def shares(
        self, plan: Mapping[str, Mechanism], progress: Callable[[str, float], None]
    ) -> dict[str, float]:
        """Return how much less a plan changes the seen images with one site as trained again.

        Sites that are as trained are left out.

        Args:
            plan: Mechanism of every site.
            progress: Called with the next step, and the share of the network that it runs.
        """
        trained = neutral(self._network)
        paths = [path for path, mechanism in plan.items() if mechanism != trained[path]]
        totals = dict.fromkeys(paths, 0.0)
        seen = self._images.seen
        places = {path: place for place, path in enumerate(plan)}
        for name, feeds in seen.items():
            progress(f"the whole plan on {name}", 1.0)
            replay = Replay(self._network, plan, feeds)
            whole = self._difference(replay.output, self._exact[name])
            for path in paths:
                progress(f"{path} on {name}", 1.0 - places[path] / len(plan))
                without = replay.replaced(path, trained[path])
                totals[path] += whole - self._difference(without, self._exact[name])
        return {path: total / len(seen) for path, total in totals.items()}

    def _outputs(self, plan: Mapping[str, Mechanism]) -> dict[str, Tensor]:
        network = swap(self._network, plan, "operator")
        return {name: _run(network, feeds) for name, feeds in self._images.samples.items()}


def _key(plan: Mapping[str, Mechanism]) -> tuple[str, ...]:
    return tuple(map(str, plan.values()))


def _run(network: nn.Module, feeds: Feeds) -> Tensor:
    with torch.inference_mode():
        outputs = network(*(torch.from_numpy(array) for array in feeds.values()))
    output: Tensor = outputs[0] if isinstance(outputs, tuple) else outputs
    return output
