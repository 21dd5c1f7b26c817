"""A plan, and what its search found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..attention.plan import Plan


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
