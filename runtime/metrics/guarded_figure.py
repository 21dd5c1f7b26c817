"""A figure that a baseline limits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GuardedFigure:
    """A figure with a limit.

    Attributes:
        title: Name for display.
        unit: Unit for display; empty for a plain number.
        rule: ``ceiling`` (at most the tolerance), ``drop`` (at least accepted - tolerance),
            ``growth`` (at most accepted + tolerance), ``growth_share`` and ``drop_share`` (the
            same with tolerance * accepted).
        tolerance: The default tolerance of a new baseline.
        needs: The options that measure it, in words; empty if it is always measured.
    """

    title: str
    unit: str
    rule: str
    tolerance: float
    needs: str = ""

    def limit(self, accepted: float, tolerance: float) -> float:
        """Return the worst value that passes."""
        if self.rule == "ceiling":
            return tolerance
        share = abs(accepted) if self.rule.endswith("share") else 1.0
        step = tolerance * share
        return accepted + step if self.grows_worse else accepted - step

    def passes(self, measured: float, limit: float) -> bool:
        """Return whether a value is within its limit; NaN never is."""
        return measured <= limit if self.grows_worse else measured >= limit

    @property
    def grows_worse(self) -> bool:
        """Whether a larger value is a worse one."""
        return not self.rule.startswith("drop")
