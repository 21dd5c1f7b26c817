"""A plan, and what its search found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..attention.plan import Plan


@dataclass(frozen=True)
class Proposal:
    """What an export computes where, and why.

    Attributes:
        plan: The plan.
        summary: What a search found, in one line; "" where the user chose the plan.
        figures: The same as JSON takes it.
        warnings: One sentence each.
    """

    plan: Plan
    summary: str = ""
    figures: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
