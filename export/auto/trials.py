"""Runs of uniform plans: their time, and the change of the output, which is remembered."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ... import __version__
from ...core.arrays import Array
from ...core.files.user_cache import key_of, read_figures, remember_figures
from ...core.ports.port import Size
from ...models.facts import Facts
from ...models.own.plain_copy import state_sha256
from ...runtime.images.images import read_image
from ...runtime.metrics.measures import mean_square, measure_for
from ...runtime.timing.turns import measure_shortest
from ..attention.mechanism import Mechanism
from ..attention.site import find_sites, neutral, swap
from ..load.images import feeds_of, photographs
from ..load.stage import Prepared
from ..pytorch.network_session import NetworkSession

Sites: TypeAlias = Mapping[str, Mechanism]
"""Path of each site -> its mechanism."""

SECONDS = 3.0
"""Seconds of attention after which no plan is timed again, once each ran three times."""


def choose_timed_size(facts: Facts) -> Size:
    """Return the size at which attention is timed: 128x128 in whole windows, or the fixed size."""
    # The time of attention without windows cannot be scaled to more pixels.
    cells = 4 if facts.window is None else -(-128 // facts.cell)
    return facts.size(cells * facts.cell, cells * facts.cell)


class Trials:
    """Runs plans of a network on images."""

    def __init__(self, prepared: Prepared) -> None:
        """Take a network and its images; nothing is run."""
        self._loaded, self._images = prepared.loaded, prepared.images
        self._exact: dict[str, Array] = {}
        # For one thread its own clock, which excludes other programs.
        self._clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
        self._attention = 0.0  # seconds

    def key(self, plans: Mapping[str, Sites], **more: Any) -> str:
        """Return the hash of the network, of plans by name, and of more that figures depend on."""
        loaded = self._loaded
        texts = {}
        for name, plan in plans.items():
            texts[name] = {path: str(mechanism) for path, mechanism in plan.items()}
        parts = [loaded.checkpoint.sha256, loaded.hyper, loaded.facts.window, __version__]
        return key_of(
            {"network": parts, "plans": texts, **more, "size": choose_timed_size(loaded.facts)}
        )

    def time(self, plans: Mapping[str, Sites]) -> dict[str, float]:
        """Return the seconds of attention in plans by name, run in turns on a photograph.

        Those that take twice the time of the first one run three times only.
        """
        facts = self._loaded.facts
        photograph = next(iter(photographs().values()))
        pixels = read_image(photograph).pixels
        feeds = feeds_of(facts, pixels, choose_timed_size(facts)).values()
        runs = {}
        for name, plan in plans.items():
            network = swap(self._loaded.network, plan, "operator")
            for site in find_sites(network):
                timed: Any = partial(self._call, site.module.implementation)
                site.module.implementation = timed
            runs[name] = partial(NetworkSession(network), *feeds)
        return measure_shortest(
            runs, most_rounds=40, seconds=SECONDS, drop=2.0, clock=lambda: self._attention
        )

    def _call(self, attention: Any, *arguments: Any) -> Tensor:
        start = self._clock()
        result: Tensor = attention(*arguments)
        self._attention += self._clock() - start
        return result

    def changes(self, plan: Sites) -> Mapping[str, float]:
        """Return the mean squared change of the output by a plan, the range taken as 1.

        Returns:
            ``seen``, the mean over the images of the choice, and ``held_out``, over the others.
        """
        samples = {
            f"{name}: {port}": torch.from_numpy(array)
            for name, feeds in self._images.samples.items()
            for port, array in feeds.items()
        }
        held_out = self._images.held_out
        sha256 = state_sha256(samples)
        key = self.key({"": plan}, samples=sha256, held_out=held_out)
        changes = read_figures(key) or self._measure(plan)
        remember_figures(key, "the changes by a plan", changes)
        return changes

    def _measure(self, plan: Sites) -> dict[str, float]:
        self._exact = self._exact or self._outputs(neutral(self._loaded.network))
        measure = measure_for(self._loaded.facts.outputs[0])
        changes: dict[str, list[float]] = {"seen": [], "held_out": []}
        for name, output in self._outputs(plan).items():
            psnr = measure.value(output, self._exact[name])
            part = "held_out" if name in self._images.held_out else "seen"
            changes[part].append(mean_square(psnr))
        means = changes.items()
        return {part: sum(figures) / len(figures) for part, figures in means}

    def _outputs(self, plan: Sites) -> dict[str, Array]:
        session = NetworkSession(swap(self._loaded.network, plan, "operator"))
        samples = self._images.samples.items()
        return {name: session(*feeds.values()) for name, feeds in samples}
