"""The result of a comparison layer by layer: layers, sizes, and the first difference."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ...core.json_text import json_number


@dataclass(frozen=True)
class LayerDifference:
    """One tensor of both runs.

    Attributes:
        node: Name of the node that computes it.
        operator: Its type, with the domain if that is not the standard one.
        tensor: Name of the tensor.
        dtype: The numpy name of its type.
        shape: Its shape.
        largest: Largest finite magnitude in the reference.
        max_abs: Largest absolute difference; NaN if one run has NaN.
        mean_abs: Mean absolute difference.
        psnr: In dB, with `largest` as peak; infinite if both are equal.
        allowed: Limit of `max_abs`.
        mean_allowed: Limit of `mean_abs`, or None.
        mean_instead: A mean within its limit is enough; otherwise both limits apply.
        finding: The fault, or "".
    """

    node: str
    operator: str
    tensor: str
    dtype: str
    shape: tuple[int, ...]
    largest: float
    max_abs: float
    mean_abs: float
    psnr: float
    allowed: float
    mean_allowed: float | None = None
    mean_instead: bool = False
    finding: str = ""

    @property
    def departs(self) -> bool:
        """Whether the two runs differ here beyond the limits."""
        return bool(self.finding)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form of the layer."""
        document = {**asdict(self), "shape": list(self.shape), "departs": self.departs}
        for key in ("largest", "max_abs", "mean_abs", "psnr", "allowed"):
            document[key] = json_number(document[key])
        return document


@dataclass(frozen=True)
class LayerCase:
    """One recorded size.

    Attributes:
        shapes: Input name -> shape.
        layers: Every layer in the order of the graph; empty if the size was skipped.
        skipped: Why the size was not compared, or "".
    """

    shapes: dict[str, list[int]]
    layers: tuple[LayerDifference, ...]
    skipped: str = ""

    @property
    def departing(self) -> tuple[LayerDifference, ...]:
        """The layers beyond their limits, in order."""
        return tuple(layer for layer in self.layers if layer.departs)


@dataclass(frozen=True)
class LayerReport:
    """The comparison of two ways to run a file.

    Attributes:
        reference: The backend and its library, in words.
        candidate: Those that are compared with it.
        cases: The sizes, the smallest first, up to the first one with a layer beyond its limits.
    """

    reference: str
    candidate: str
    cases: tuple[LayerCase, ...]

    @property
    def passed(self) -> bool:
        """Whether all layers are within their limits at all sizes."""
        return self.first is None

    @property
    def first(self) -> LayerDifference | None:
        """The first layer beyond its limits, at the smallest such size."""
        return next((case.departing[0] for case in self.cases if case.departing), None)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form of the report; ``first`` is the first layer beyond its limits."""
        cases = []
        for case in self.cases:
            entry: dict[str, Any] = {"shapes": case.shapes, "skipped": case.skipped or None}
            entry["departing"] = len(case.departing)
            entry["layers"] = [layer.as_dict() for layer in case.layers]
            cases.append(entry)
        return {
            "passed": self.passed,
            "reference": self.reference,
            "candidate": self.candidate,
            "first": None if self.first is None else self.first.as_dict(),
            "cases": cases,
        }
