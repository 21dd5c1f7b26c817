"""Sensitivity: the mean-square change of the output with a candidate at one site."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ...models.facts import Facts
from ..attention.mechanism import Mechanism
from ..attention.site import neutral
from ..load.images import Feeds
from .eta import Eta
from .record import Record
from .replay import Replay


class Difference:
    """Mean-square difference of outputs, as the PSNR takes it: clipped, the range taken as 1."""

    def __init__(self, facts: Facts) -> None:
        self._low, self._high = facts.outputs[0].range or (0.0, 1.0)

    def __call__(self, got: Tensor, expected: Tensor) -> float:
        """Return the mean over all values; 1, the largest possible value, if one is NaN."""
        first, second = (output.clamp(self._low, self._high).double() for output in (got, expected))
        mean = float(torch.mean((first - second) ** 2)) / (self._high - self._low) ** 2
        return mean if math.isfinite(mean) else 1.0


def measure_changes(
    network: nn.Module,
    facts: Facts,
    samples: Mapping[str, Feeds],
    options: Mapping[str, Sequence[Mechanism]],
    record: Record,
    eta: Eta,
) -> dict[str, dict[str, float]]:
    """Return the mean change by path of the site and text of the candidate; as trained it is 0.

    Args:
        network: The loaded network.
        facts: Facts of the network.
        samples: Images for the choice.
        options: Candidates of every site, as trained first.
        record: Earlier measurements, to which new ones are added.
        eta: The remaining work, to which these measurements are added.
    """
    difference, trained = Difference(facts), neutral(network)
    missing = {
        crop: {
            path: [
                mechanism for mechanism in several[1:] if not record.has(crop, path, str(mechanism))
            ]
            for path, several in options.items()
        }
        for crop in samples
    }
    sites = list(options)
    again = {path: 1.0 - place / len(sites) for place, path in enumerate(sites)}  # of the network
    eta.left += sum(
        again[path] * len(row) for several in missing.values() for path, row in several.items()
    )
    try:
        for crop, rows in missing.items():
            if not any(rows.values()):
                continue
            replay = Replay(network, trained, samples[crop])
            for path, several in rows.items():
                eta.announce(f"measure {path.removesuffix('.attn')} on {crop}")
                for mechanism in several:
                    change = difference(replay.replaced(path, mechanism), replay.output)
                    record.note(crop, path, str(mechanism), change)
                eta.done(again[path] * len(several))
    finally:
        record.write()
    return {
        path: {
            str(mechanism): sum(record.changes[crop][path][str(mechanism)] for crop in samples)
            / len(samples)
            if place
            else 0.0
            for place, mechanism in enumerate(several)
        }
        for path, several in options.items()
    }
