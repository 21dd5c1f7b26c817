"""What ``--attn auto`` is given, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .attention.plan import Plan

DEFAULT_BUDGET = 50.0
"""dB against the network as trained"""


@dataclass(frozen=True)
class AutoOptions:
    """Choose the fastest plan within the budget of ``min_psnr``, instead of a given plan.

    Attributes:
        costs: File of the costs: read if it exists, otherwise written; None: no file.
        keep_full: Sites that stay as trained.
    """

    costs: Path | None = None
    keep_full: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proposal:
    """The plan of an export, and its reasons.

    Attributes:
        plan: The plan.
        summary: The result of a search, in one line; "" if the user chose the plan.
        figures: The same in JSON form.
        warnings: One sentence each.
    """

    plan: Plan
    summary: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
