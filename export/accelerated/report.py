"""What `accelerate` gained, and whether the result is the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...core.ports.port import Shape, join_sides
from ...core.text import milliseconds

MODULE = "module"
"""The name of the module as it is."""


@dataclass(frozen=True)
class Acceleration:
    """How a module is computed, what that gained and whether the result is the same.

    Attributes:
        way: What computes it: the name of a backend, or ``module`` for the frozen copy of the
            module, where nothing is faster or nothing else works.
        shapes: Shapes of the tensors that it was measured on.
        seconds: Way -> seconds of a call, the shortest of interleaved calls.
        remembered: The seconds were measured in an earlier process on this machine.
        difference: Largest difference between its outputs and those of the module in float32,
            relative to the largest value of the output.
        equal: That difference is one of rounding. False with linear attention.
        file: The model file, or None.
        reasons: Way -> why it is not used, for those that do not work.
    """

    way: str
    shapes: tuple[Shape, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    remembered: bool = False
    difference: float = 0.0
    equal: bool = True
    file: Path | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def speedup(self) -> float:
        """Seconds of the module divided by those of the way in use; 1 where nothing was timed."""
        seconds = self.seconds
        if MODULE not in seconds or self.way not in seconds:
            return 1.0
        return seconds[MODULE] / seconds[self.way]

    def __str__(self) -> str:
        """Return it in words, one sentence a line."""
        every_shape = ", ".join(join_sides(shape) for shape in self.shapes)
        shapes = every_shape or "all inputs"
        lines = [f"the unchanged module computes {shapes}"]
        if self.way != MODULE:
            same = "the same but for rounding" if self.equal else "not the same"
            lines = [
                f"{self.way} computes {shapes}, {self.speedup:.2f} times as fast as the module",
                f"the result is {same}: largest difference {self.difference:.0e} of its maximum",
            ]
        by_seconds = sorted((seconds, way) for way, seconds in self.seconds.items())
        for seconds, way in by_seconds:
            lines.append(f"{way} takes {milliseconds(seconds)}")
        lines += [f"{way}: {why}" for way, why in self.reasons.items()]
        return "\n".join(lines)
