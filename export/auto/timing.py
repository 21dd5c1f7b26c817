"""Measures the table of costs: each candidate for the calls of a network's sites."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...core.ports.port import Size, image_size
from ...models.facts import Facts
from ...runtime.images.images import read_image
from ...runtime.timing.turns import least_seconds
from ..attention.implementation import AnySite, implement
from ..attention.mechanism import Mechanism
from ..attention.site import find_sites, neutral, swap
from ..load.images import feeds_of, photographs
from .costs import CostTable

ROUNDS, MOST_ROUNDS, SECONDS = 3, 40, 3.0
"""Calls per measurement; the shortest counts."""

_SIDE = 128


@dataclass
class Calls:
    """The calls of a network's sites at the timed size.

    Attributes:
        of: Path of a site -> its calls.
        arguments: Call -> a site with it, and its arguments.
        size: Size of the image.
    """

    of: dict[str, list[str]] = field(default_factory=dict)
    arguments: dict[str, tuple[AnySite, tuple[Any, ...]]] = field(default_factory=dict)
    size: Size = field(default_factory=dict)


def record_calls(network: nn.Module, facts: Facts) -> Calls:
    """Run the network as trained on a photograph and record the calls of its sites."""
    calls = Calls(size=attention_size(facts))
    copied = swap(network, neutral(network), "operator")
    for site, own in zip(find_sites(copied), find_sites(network), strict=True):
        calls.of[site.path] = []
        inner: Any = site.module.implementation
        recorded: Any = _recorded(inner, site.path, own.module, calls)
        site.module.implementation = recorded
    with torch.inference_mode():
        copied(*_inputs(facts, calls.size))
    return calls


def attention_size(facts: Facts) -> Size:
    """Return the size at which attention is timed: 128x128 in whole windows, or the fixed size."""
    if facts.sides is not None:
        return facts.sides
    if facts.window is None:  # its time cannot be scaled to more pixels
        return facts.test_size()
    side = -(-_SIDE // facts.cell) * facts.cell
    return image_size(side, side)


def _inputs(facts: Facts, size: Size) -> list[Tensor]:
    pixels = read_image(next(iter(photographs().values()))).pixels
    return [torch.from_numpy(array) for array in feeds_of(facts, pixels, size).values()]


def _recorded(
    inner: Callable[..., Tensor], path: str, module: AnySite, calls: Calls
) -> Callable[..., Tensor]:
    def call(*arguments: Any) -> Tensor:
        text = "; ".join(map(_described, arguments))
        calls.of[path].append(text)
        if text not in calls.arguments:
            calls.arguments[text] = (module, arguments)
        return inner(*arguments)

    return call


def _described(argument: Any) -> str:
    if isinstance(argument, Tensor):
        return "x".join(map(str, argument.shape))
    return repr(argument)


def measure_costs(
    calls: Calls,
    options: Mapping[str, Sequence[Mechanism]],
    table: CostTable,
    progress: Callable[[str], None],
) -> None:
    """Time every candidate for every call that the table lacks, in place.

    Args:
        calls: The calls of the network's sites.
        options: Candidates of every site.
        table: The table to complete.
        progress: Called with each step.
    """
    wanted: dict[str, dict[str, Mechanism]] = {}
    for path, of_site in calls.of.items():
        for call in of_site:
            wanted.setdefault(call, {}).update(
                {str(mechanism): mechanism for mechanism in options[path]}
            )
    missing = {call: row for call, row in wanted.items() if table.lacks([call], row.values())}
    for place, (call, row) in enumerate(missing.items(), 1):
        progress(f"{place}/{len(missing)} time attention: {len(row)} candidates")
        module, arguments = calls.arguments[call]
        several = {
            key: partial(implement(mechanism, module, "operator"), *arguments)
            for key, mechanism in row.items()
        }
        table.seconds[call] = _least_seconds(several)


def _least_seconds(several: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Time candidates in turn; those slower than the first are never chosen and dropped."""
    with torch.inference_mode():
        return least_seconds(
            several,
            rounds=ROUNDS,
            most_rounds=MOST_ROUNDS,
            seconds=SECONDS,
            drop=2.0,
            clock=_clock(),
        )


def _clock() -> Callable[[], float]:
    """Return the clock: for one thread the thread's own, which excludes other programs."""
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter
