"""The result of a comparison layer by layer: layers, sizes, and the first that departs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ...core.json_text import json_number


@dataclass(frozen=True)
class LayerDifference:
    """One tensor, run both ways.

    Attributes:
        node: Name of the node that makes it.
        operator: Its type, with the domain where that is not the standard one.
        tensor: Name of the tensor.
        dtype: The numpy name of its type.
        shape: Its shape.
        largest: Largest finite magnitude in the reference.
        max_abs: Largest absolute difference; NaN where one way has NaN.
        mean_abs: Mean absolute difference.
        psnr: In dB, with `largest` as peak; infinite if both are equal.
        allowed: What `max_abs` may be.
        mean_allowed: What `mean_abs` may be, or None for no bound.
        mean_instead: A mean within its bound is enough; else both bounds hold.
        finding: What is wrong, or nothing.
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
        """Whether the two ways disagree here."""
        return bool(self.finding)

    def as_dict(self) -> dict[str, Any]:
        """Return the layer as JSON takes it."""
        document = {**asdict(self), "shape": list(self.shape), "departs": self.departs}
        for key in ("largest", "max_abs", "mean_abs", "psnr", "allowed"):
            document[key] = json_number(document[key])
        return document


@dataclass(frozen=True)
class LayerCase:
    """One recorded size.

    Attributes:
        shapes: Input name -> shape.
        layers: Every layer in the order of the graph, or none where `skipped` says why.
        skipped: Why the size was not compared, or nothing.
    """

    shapes: dict[str, list[int]]
    layers: tuple[LayerDifference, ...]
    skipped: str = ""

    @property
    def departing(self) -> tuple[LayerDifference, ...]:
        """The layers that depart, the first one first."""
        return tuple(layer for layer in self.layers if layer.departs)


@dataclass(frozen=True)
class LayerReport:
    """Two ways to run one file.

    Attributes:
        reference: The backend and its library, in words.
        candidate: The same of what is compared with it.
        cases: The sizes, the smallest first; it ends with the first one where a layer departs.
    """

    reference: str
    candidate: str
    cases: tuple[LayerCase, ...]

    @property
    def passed(self) -> bool:
        """Whether no layer departs at any size."""
        return self.first is None

    @property
    def first(self) -> LayerDifference | None:
        """The first layer that departs, at the smallest size where one does."""
        return next((case.departing[0] for case in self.cases if case.departing), None)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON takes it; ``first`` is the first layer that departs."""
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
