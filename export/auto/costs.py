"""The times of plans: measured once for a network and a machine, or those of ``--costs FILE``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from ...core.errors import NystraError
from ...core.files.user_cache import key_of, read_figures, remember_figures
from ...core.files.writing import atomic_write_bytes
from ...core.json_text import is_number, read_json, require_keys, require_version, stable_json
from ...plugins.library import isa
from ...plugins.native import available
from ...runtime.timing.rows import describe_machine
from .trials import Sites, Trials

_KEYS = ("schema_version", "network", "machine", "seconds")
_VERSION = 2
_ADVICE = "give the name of a new file, which will be measured and written"


def this_machine() -> str:
    """Return the properties of the machine that times depend on."""
    own = describe_machine(torch.get_num_threads())
    kernels = isa() if available() else "none"
    return f"{own['cpu']}, threads {own['threads']}, kernels {kernels}, nystra {own['nystra']}"


def find_costs(
    path: Path | None, trials: Trials, plans: Mapping[str, Sites]
) -> tuple[Mapping[str, float], list[str]]:
    """Return the seconds of plans by name, of a file or of this machine, and warnings.

    Args:
        path: The file, which is written if it does not exist; None: no file.
        trials: Runs plans, where no times are remembered.
        plans: Plans by name.

    Raises:
        NystraError: The file is not a table of costs, or of other plans.
    """
    network = trials.key(plans)
    if path is None or not path.exists():
        key = key_of({"network": network, "machine": this_machine()})
        costs = read_figures(key) or trials.time(plans)
        remember_figures(key, "attention in plans", costs)
        if path is not None:
            write_costs(path, network, costs)
        return costs, []
    where = f"the costs {path}"
    record = require_version(read_json(path, "the costs"), where, _VERSION, _ADVICE)
    require_keys(record, where, _KEYS, _KEYS)
    costs = record["seconds"]
    if not isinstance(costs, dict):
        raise NystraError(f"{where}: expected seconds above 0; {_ADVICE}")
    if not all(is_number(seconds) and seconds > 0 for seconds in costs.values()):
        raise NystraError(f"{where}: expected seconds above 0; {_ADVICE}")
    if record["network"] != network or plans.keys() - costs:
        raise NystraError(
            f"{where} are of another network, of other sites to keep or of another version of "
            f"nystra: {_ADVICE}"
        )
    if record["machine"] == this_machine():
        return costs, []
    text = f"{where} were measured elsewhere ({record['machine']!s:.200}; here {this_machine()})"
    return costs, [f"{text}: the plan is the fastest on that machine, not on this one"]


def write_costs(path: Path, network: str, costs: Mapping[str, float]) -> None:
    """Write times of this machine as JSON, or raise NystraError."""
    values = (_VERSION, network, this_machine(), costs)
    record = dict(zip(_KEYS, values, strict=True))
    atomic_write_bytes(path, stable_json(record))
