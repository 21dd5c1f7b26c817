"""A table of ``--costs`` with given times, so that ``--attn auto`` chooses the same each time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nystra.export import ExportOptions
from nystra.export.auto.costs import write_costs
from nystra.export.auto.search import site_plans
from nystra.export.auto.trials import Trials
from nystra.export.auto_options import AutoOptions
from nystra.export.load.stage import prepare

SLOW = 4.0
"""Seconds of plans that are not named."""


def table(
    checkpoint: Path,
    path: Path,
    seconds: Mapping[str, float],
    keep_full: tuple[str, ...] = (),
    **options: Any,
) -> Path:
    """Write a table for a network in which plans take these times, and return its path."""
    exporting = ExportOptions(AutoOptions(keep_full=keep_full), **options)
    prepared = prepare(checkpoint, exporting, lambda _: None)
    plans = site_plans(prepared, keep_full)
    write_costs(
        path, Trials(prepared).key(plans), {name: seconds.get(name, SLOW) for name in plans}
    )
    return path
