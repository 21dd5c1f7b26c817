"""Whether a file is correct; the quality of its results is measured in ``quality.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from ...core.arrays import Array
from ...core.errors import NystraError
from ...core.json_text import is_number, json_number
from ...core.ports.port import join_sides
from ..metrics.measures import ROUNDING, reference_figures, worst_figures
from ..metrics.sanity import find_problems, max_abs
from ..model.references import (
    FURTHER,
    MEAN_TOLERANCES_IN,
    TOLERANCES_IN,
    ReferenceCase,
    References,
)


class NamedRunner(Protocol):
    """Runs a model on named arrays, as `Session` does; PyTorch can be wrapped like this."""

    def run(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return output name -> array."""


Runner = NamedRunner | Callable[[Array], Array]
Limit = tuple[float, float | None]
"""Limit of the largest difference, and of the mean if it counts."""


def sides_text(shapes: Mapping[str, Sequence[int]]) -> str:
    """Return height and width of the first input in words: ``32x48``."""
    return join_sides(next(iter(shapes.values()))[-2:])


@dataclass(frozen=True)
class SizeReport:
    """One recorded size, the model's outputs against the references.

    Attributes:
        shapes: Input name -> shape.
        max_abs: Largest absolute difference of the first output, and of all others that have no
            tolerance of their own.
        mean_abs: Mean absolute difference of the same.
        figures: How the outputs agree, by name, as `reference_figures` finds: the PSNR of images,
            relative error and top-1 and top-5 agreement of logits.
        tolerance: Upper limit of `max_abs`.
        mean_tolerance: Upper limit of `mean_abs` with which a size passes although `max_abs` is
            above its tolerance; None: there is none.
        findings: Faults: NaN, infinity, a flat output, a difference above a tolerance.
    """

    shapes: dict[str, list[int]]
    max_abs: float
    mean_abs: float
    figures: dict[str, float]
    tolerance: float
    findings: tuple[str, ...]
    mean_tolerance: float | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form of the report, each figure a key of its own."""
        entry = asdict(self)
        numbers = {"max_abs": self.max_abs, "mean_abs": self.mean_abs, **entry.pop("figures")}
        return {
            **entry,
            **{name: json_number(value) for name, value in numbers.items()},
            "findings": list(self.findings),
            "passed": self.passed,
        }


@dataclass(frozen=True)
class ValidationReport:
    """All sizes of one validation."""

    sizes: tuple[SizeReport, ...]

    @property
    def passed(self) -> bool:
        """Whether every size passed."""
        return all(size.passed for size in self.sizes)

    @property
    def max_abs(self) -> float:
        """The largest difference of all sizes; NaN if one is."""
        return float(np.max([size.max_abs for size in self.sizes]))

    @property
    def figures(self) -> dict[str, float]:
        """The worst of each figure over all sizes; NaN if one is."""
        return worst_figures(size.figures for size in self.sizes)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form of the report."""
        return {
            "passed": self.passed,
            "max_abs": json_number(self.max_abs),
            **{name: json_number(value) for name, value in self.figures.items()},
            "sizes": [size.as_dict() for size in self.sizes],
        }


def validate_against_references(
    runner: Runner,
    references: References,
    tolerance: float | Sequence[float] | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> ValidationReport:
    """Compare the outputs of a model with recorded references.

    Args:
        runner: A `Session`, anything else with its ``run``, or a function of the only input that
            returns the only output.
        references: The recorded cases.
        tolerance: Largest absolute difference, one number or one per case; None: the recorded one
            for the runner's ``precision``, or `ROUNDING`.
        progress: Called with the name of each step, ``2/3 compare 32x48``.

    Raises:
        NystraError: Inputs, outputs or shapes of the model differ from the references, or no
            tolerance was recorded for its precision.
    """
    precision = getattr(runner, "precision", None)
    limits = find_allowed_differences(references, tolerance, precision)
    further = further_differences(references, tolerance, precision)
    return compare(runner, references, limits, further, progress)


def compare(
    runner: Runner,
    references: References,
    limits: Sequence[Limit],
    further: Mapping[str, Sequence[Limit]],
    progress: Callable[[str], None] = lambda step: None,
) -> ValidationReport:
    """Compare as `validate_against_references` does, with the limits of each case given.

    Args:
        runner: As there.
        references: The recorded cases.
        limits: One a case, as `find_allowed_differences` returns them; infinity allows anything.
        further: The same for outputs with limits of their own, from `further_differences`.
        progress: As there.

    Raises:
        NystraError: As there.
    """
    reports = []
    for place, (case, limit) in enumerate(zip(references.cases, limits, strict=True), 1):
        shapes = {name: array.shape for name, array in case.inputs.items()}
        progress(f"{place}/{len(references.cases)} compare {sides_text(shapes)}")
        own = {name: limits_of_it[place - 1] for name, limits_of_it in further.items()}
        reports.append(_size_report(runner, case, _roles(references), limit, own))
    return ValidationReport(tuple(reports))


def find_allowed_differences(
    references: References,
    tolerance: float | Sequence[float] | None = None,
    precision: str | None = None,
) -> list[Limit]:
    """Return for each case the limits of the first output.

    Args:
        references: The recorded cases.
        tolerance: As in `validate_against_references`.
        precision: The precision of the computation, if not that of the file.

    Raises:
        NystraError: The numbers of tolerances and cases differ, a tolerance is not a number or so
            large that any output would pass, or none was recorded for the precision.
    """
    outputs = (output for case in references.cases for output in case.outputs.values())
    count = len(references.cases)
    return _limits(references.meta, count, _magnitude(outputs), tolerance, precision)


def further_differences(
    references: References,
    tolerance: float | Sequence[float] | None = None,
    precision: str | None = None,
) -> dict[str, list[Limit]]:
    """Return the limits of all outputs with tolerances of their own, by name.

    Arguments and errors are those of `find_allowed_differences`.
    """
    recorded = references.meta.get(FURTHER, {})
    if not isinstance(recorded, dict) or not all(isinstance(of, dict) for of in recorded.values()):
        raise NystraError(f"the references have damaged {FURTHER}: export the model again")
    limits = {}
    for name, tolerances in recorded.items():
        outputs = (case.outputs[name] for case in references.cases if name in case.outputs)
        count = len(references.cases)
        limits[name] = _limits(tolerances, count, _magnitude(outputs), tolerance, precision)
    return limits


def _limits(
    recorded: Mapping[str, Any],
    count: int,
    magnitude: float,
    tolerance: float | Sequence[float] | None,
    precision: str | None,
) -> list[Limit]:
    if tolerance is None and precision not in (None, "fp32"):
        recorded = _find_recorded(recorded, str(precision))
    limits = tolerance if tolerance is not None else recorded.get("tolerances")
    means = None if tolerance is not None else recorded.get("mean_tolerances")
    if limits is None:
        limits = ROUNDING
    ceiling = magnitude if tolerance is not None and magnitude > 0.0 else max(1.0, magnitude)
    largest = _tolerances(limits, count, ceiling)
    mean = [None] * count if means is None else _tolerances(means, count, ceiling)
    return list(zip(largest, mean, strict=True))


def _find_recorded(tolerances: Mapping[str, Any], precision: str) -> dict[str, Any]:
    limits, means = (
        recorded.get(precision) if isinstance(recorded, dict) else None
        for recorded in map(tolerances.get, (TOLERANCES_IN, MEAN_TOLERANCES_IN))
    )
    if limits is None:
        raise NystraError(
            f"the references have no tolerance for computing in {precision}: an export of fp32 "
            "or int8 records one, except for files with a patch search and for networks that "
            f"were not measured in {precision}. Export again, or give `checkpoint` or `tolerance`"
        )
    return {"tolerances": limits} | ({} if means is None else {"mean_tolerances": means})


def _magnitude(outputs: Iterable[Array]) -> float:
    return max((float(np.abs(output).max(initial=0.0)) for output in outputs), default=0.0)


def _tolerances(value: Any, count: int, ceiling: float) -> list[float]:
    numbers = list(value) if isinstance(value, list | tuple) else [value] * count
    if len(numbers) != count:
        raise NystraError(f"got {len(numbers)} tolerances, expected one for {count} cases")
    for number in numbers:
        if not is_number(number) or not 0 <= number < ceiling:
            raise NystraError(
                f"a tolerance is {number!r}, expected a number from 0 to below {ceiling:.3g}, "
                "the largest value of an output: a larger tolerance would accept any output"
            )
    return [float(number) for number in numbers]


def _roles(references: References) -> dict[str, str]:
    """Return output name -> role, as recorded; untrusted, and possibly missing."""
    recorded = references.meta.get("roles")
    if not isinstance(recorded, dict):
        return {}
    return {name: role for name, role in recorded.items() if isinstance(role, str)}


def _size_report(
    runner: Runner,
    case: ReferenceCase,
    roles: Mapping[str, str],
    limit: Limit,
    further: Mapping[str, Limit],
) -> SizeReport:
    feeds = case.feeds()
    outputs = _run(runner, feeds, tuple(case.outputs))
    worst, total, count = 0.0, 0.0, 0
    findings: list[str] = []
    pairs: list[tuple[str, Array, Array]] = []
    for name, expected in case.outputs.items():
        if name not in outputs:
            raise NystraError(f"the model returns {sorted(outputs)}, the references have {name!r}")
        got = np.asarray(outputs[name])
        findings += [finding.message for finding in find_problems(got, name, expected)]
        largest = max_abs(got, expected)
        difference = float(np.abs(got.astype(np.float64) - expected.astype(np.float64)).sum())
        if name in further:
            text = _beyond(largest, difference / max(got.size, 1), further[name])
            findings += [f"{name}: {text}"] if text else []
            continue
        worst = float(np.maximum(worst, largest))
        total += difference
        count += got.size
        pairs.append((roles.get(name, ""), got, expected))
    mean = total / max(count, 1)
    tolerance, mean_tolerance = limit
    findings += filter(None, [_beyond(worst, mean, limit)])
    return SizeReport(
        {name: list(array.shape) for name, array in feeds.items()},
        worst,
        mean,
        reference_figures(pairs),
        tolerance,
        tuple(findings),
        mean_tolerance,
    )


def _run(runner: Runner, feeds: Mapping[str, Array], names: tuple[str, ...]) -> Mapping[str, Array]:
    if hasattr(runner, "run"):
        outputs: Mapping[str, Array] = runner.run(feeds)
        return outputs
    if len(feeds) != 1 or len(names) != 1:
        raise NystraError(
            "a function in place of a session needs a model with one input and one output"
        )
    return {names[0]: runner(next(iter(feeds.values())))}


def _beyond(largest: float, mean: float, limit: Limit) -> str:
    tolerance, mean_tolerance = limit
    if largest <= tolerance or (mean_tolerance is not None and mean <= mean_tolerance):
        return ""
    text = f"the largest difference is {largest:.3g}, allowed is {tolerance:.3g}"
    if mean_tolerance is not None:
        text += f", and the mean is {mean:.3g}, allowed is {mean_tolerance:.3g}"
    return text
