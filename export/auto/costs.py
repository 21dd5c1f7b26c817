"""The table of costs: seconds of each candidate for each distinct call, on one machine; JSON.

A call is the kind of site, the shapes and the geometry that a site passes to its mechanism. Sites
with equal calls take the same time, in any network.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ... import __version__
from ...core.errors import NystraError
from ...core.files.writing import atomic_write_bytes
from ...core.json_text import is_number, read_json, require_keys, require_version, stable_json
from ...core.ports.port import Size, image_size
from ...models.facts import Facts
from ...plugins.library import isa
from ...plugins.native import available
from ...runtime.images.images import read_image
from ...runtime.timing.rows import describe_machine
from ...runtime.timing.turns import least_seconds
from ..attention.implementation import AnySite, implement
from ..attention.mechanism import Mechanism
from ..attention.site import find_sites, neutral, swap
from ..load.images import feeds_of, photographs

ROUNDS, MOST_ROUNDS, SECONDS = 3, 40, 3.0
"""Calls per measurement; the shortest counts."""

SCHEMA_VERSION = 1
_KEYS = ("schema_version", "machine", "seconds")

_EXPECTED = "give one that was written with `mechanism` auto and `costs`"
_SIDE = 128


def this_machine() -> dict[str, Any]:
    """Return the properties of the machine that times depend on."""
    threads = torch.get_num_threads()
    kernels = isa() if available() else "none"
    cpu = describe_machine(threads)["cpu"]
    return {"cpu": cpu, "threads": threads, "kernels": kernels, "nystra": __version__}


@dataclass
class CostTable:
    """The measured times.

    Attributes:
        machine: The machine, as `this_machine` returns it.
        seconds: Call -> text of the candidate -> seconds.
    """

    machine: dict[str, Any] = field(default_factory=this_machine)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)

    def lacks(self, call: str, candidates: Iterable[Mechanism]) -> bool:
        """Return whether a candidate was not timed for a call."""
        return not set(map(str, candidates)) <= self.seconds.get(call, {}).keys()

    def cost(self, calls: Sequence[str], candidate: Mechanism) -> float:
        """Return the seconds of a candidate at a site that makes these calls."""
        return sum(self.seconds[call][str(candidate)] for call in calls)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"schema_version": SCHEMA_VERSION, **vars(self)}

    def write(self, path: Path) -> None:
        """Write the table, or raise NystraError."""
        atomic_write_bytes(path, stable_json(self.as_dict()))


def read_costs(path: Path) -> CostTable:
    """Read a table, or raise NystraError if the file is none."""
    return parse_costs(read_json(path, "the costs"), f"the costs {path}")


def parse_costs(document: Any, where: str) -> CostTable:
    """Return the table of a decoded JSON document; ``where`` names it in errors.

    Raises:
        NystraError: Unknown or missing keys, another version, or values that are not seconds.
    """
    record = require_version(document, where, SCHEMA_VERSION, _EXPECTED)
    require_keys(record, where, _KEYS, _KEYS)
    machine, seconds = record["machine"], record["seconds"]
    if not isinstance(machine, dict) or not is_table(seconds, lambda x: is_number(x) and x > 0):
        raise NystraError(f"{where}: expected seconds above 0; {_EXPECTED}")
    return CostTable(machine, seconds)


def is_table(value: Any, fits: Callable[[Any], bool]) -> bool:
    """Return whether a JSON value is an object of objects, all of whose values fit."""
    return isinstance(value, dict) and all(
        isinstance(row, dict) and all(map(fits, row.values())) for row in value.values()
    )


def foreign_warnings(table: CostTable, path: Path | None) -> tuple[str, ...]:
    """Return a warning if the times are from another machine."""
    changed = [
        f"{key} {table.machine.get(key)}, here {value}"
        for key, value in this_machine().items()
        if table.machine.get(key) != value
    ]
    if path is None or not changed:
        return ()
    text = f"the costs {path} were measured elsewhere ({'; '.join(changed)})"
    return (f"{text}: the plan is the fastest on that machine, not on this one",)


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
    calls = Calls(size=_timed_size(facts))
    copied = swap(network, neutral(network), "operator")
    for site, own in zip(find_sites(copied), find_sites(network), strict=True):
        calls.of[site.path] = []
        inner: Any = site.module.implementation
        recorded: Any = _recorded(inner, site.path, own.module, calls)
        site.module.implementation = recorded
    pixels = read_image(next(iter(photographs().values()))).pixels
    feeds = feeds_of(facts, pixels, calls.size).values()
    with torch.inference_mode():
        copied(*map(torch.from_numpy, feeds))
    return calls


def _timed_size(facts: Facts) -> Size:
    """Return the size at which attention is timed: 128x128 in whole windows, or the fixed size."""
    if facts.sides is not None:
        return facts.sides
    if facts.window is None:  # its time cannot be scaled to more pixels
        return facts.test_size()
    side = -(-_SIDE // facts.cell) * facts.cell
    return image_size(side, side)


def _recorded(
    inner: Callable[..., Tensor], path: str, module: AnySite, calls: Calls
) -> Callable[..., Tensor]:
    def call(*arguments: Any) -> Tensor:
        text = "; ".join(
            "x".join(map(str, argument.shape)) if isinstance(argument, Tensor) else repr(argument)
            for argument in arguments
        )
        calls.of[path].append(text)
        calls.arguments.setdefault(text, (module, arguments))
        return inner(*arguments)

    return call


def costs_of(
    path: Path | None,
    sites: Mapping[str, Sequence[Mechanism]],
    calls: Calls,
    known: CostTable | None,
    progress: Callable[[str], None],
) -> CostTable:
    """Return the table of a file, or a known one completed by measurements.

    Args:
        path: The file, which is written if it does not exist; None: no file.
        sites: Path of a site -> its candidates.
        calls: The calls of the sites.
        known: Earlier measurements, which count if they are of this machine.
        progress: Called with each step.

    Raises:
        NystraError: The file is not a table of costs, or lacks some of these candidates.
    """
    if path is not None and path.exists():
        table = read_costs(path)
        lacking = [
            (site, call)
            for site, row in sites.items()
            for call in calls.of[site]
            if table.lacks(call, row)
        ]
        if lacking:
            site, call = lacking[0]
            raise NystraError(
                f"the costs {path} have no entry for {len(lacking)} sites of this network or their "
                f"candidates, first {site} ({call:.120}): they are for another network or version "
                "of nystra; give the name of a new file, which will be measured and written"
            )
        return table
    table = CostTable() if known is None or known.machine != this_machine() else known
    _measure(calls, sites, table, progress)
    if path is not None:
        table.write(path)
    return table


def _measure(
    calls: Calls,
    sites: Mapping[str, Sequence[Mechanism]],
    table: CostTable,
    progress: Callable[[str], None],
) -> None:
    """Time every candidate for every call that the table lacks, in place."""
    wanted: dict[str, dict[Mechanism, None]] = {}
    for path, of_site in calls.of.items():
        for call in of_site:
            wanted.setdefault(call, {}).update(dict.fromkeys(sites[path]))
    missing = {call: row for call, row in wanted.items() if table.lacks(call, row)}
    # For one thread its own clock, which excludes other programs. Candidates slower than the
    # first are never chosen and dropped.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    for place, (call, row) in enumerate(missing.items(), 1):
        progress(f"{place}/{len(missing)} time attention: {len(row)} candidates")
        module, arguments = calls.arguments[call]
        several = {
            str(each): partial(implement(each, module, "operator"), *arguments) for each in row
        }
        with torch.inference_mode():
            table.seconds[call] = least_seconds(
                several,
                rounds=ROUNDS,
                most_rounds=MOST_ROUNDS,
                seconds=SECONDS,
                drop=2.0,
                clock=clock,
            )
