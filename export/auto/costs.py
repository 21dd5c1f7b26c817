"""The table of costs: seconds of each candidate for each distinct call, on one machine; JSON.

A call is the kind of site, the shapes and the geometry that a site passes to its mechanism. Sites
with equal calls take the same time, in any network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ... import __version__
from ...core.errors import NystraError
from ...core.files.writing import atomic_write_bytes
from ...core.json_records import is_number, require_keys, require_version
from ...core.json_text import stable_json
from ...core.strict_json import read_json
from ...plugins.library import isa
from ...plugins.native import available
from ...runtime.timing.rows import describe_machine
from ..attention.mechanism import Mechanism

SCHEMA_VERSION = 1
_KEYS = ("schema_version", "machine", "seconds")
_FORMER_KEYS = ("rest",)
"""Keys of tables of earlier versions, which are ignored."""

_EXPECTED = "give one that was written with `mechanism` auto and `costs`"


def this_machine() -> dict[str, Any]:
    """Return the properties of the machine that times depend on."""
    threads = torch.get_num_threads()
    known = describe_machine(threads)
    kernels = isa() if available() else "none"
    return {"cpu": known["cpu"], "threads": threads, "kernels": kernels, "nystra": __version__}


@dataclass
class CostTable:
    """The measured times.

    Attributes:
        machine: The machine, as `this_machine` returns it.
        seconds: Call -> text of the candidate -> seconds.
    """

    machine: dict[str, Any] = field(default_factory=this_machine)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)

    def lacks(self, calls: Sequence[str], candidates: Iterable[Mechanism]) -> list[str]:
        """Return the calls of a site for which a candidate was not timed."""
        names = {str(candidate) for candidate in candidates}
        return [call for call in calls if not names <= set(self.seconds.get(call, ()))]

    def cost(self, calls: Sequence[str], candidate: Mechanism) -> float:
        """Return the seconds of a candidate at a site that makes these calls."""
        return sum(self.seconds[call][str(candidate)] for call in calls)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "schema_version": SCHEMA_VERSION,
            "machine": self.machine,
            "seconds": self.seconds,
        }

    def write(self, path: Path) -> None:
        """Write the table.

        Raises:
            NystraError: It cannot be written.
        """
        atomic_write_bytes(path, stable_json(self.as_dict()))


def read_costs(path: Path) -> CostTable:
    """Read a table.

    Raises:
        NystraError: It is not a table of costs.
    """
    return parse_costs(read_json(path, "the costs"), f"the costs {path}")


def parse_costs(document: Any, where: str) -> CostTable:
    """Return the table of a decoded JSON document.

    Args:
        document: The JSON.
        where: Its name in errors.

    Raises:
        NystraError: Unknown or missing keys, another version, or values that are not seconds.
    """
    record = require_version(document, where, SCHEMA_VERSION, _EXPECTED)
    require_keys(record, where, (*_KEYS, *_FORMER_KEYS), _KEYS)
    machine, seconds = record["machine"], record["seconds"]
    rows = list(seconds.values()) if isinstance(seconds, dict) else [None]
    if not isinstance(machine, dict) or not all(map(_are_seconds, rows)):
        raise NystraError(f"{where}: expected seconds above 0; {_EXPECTED}")
    return CostTable(machine, seconds)


def _are_seconds(row: Any) -> bool:
    return isinstance(row, Mapping) and all(
        is_number(value) and value > 0 for value in row.values()
    )
