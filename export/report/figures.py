"""The figures of an export as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...core.text import milliseconds, pluralize

if TYPE_CHECKING:
    from ...runtime.metrics.measures import Measure
    from ..validate.model_file import FileValidation
    from ..validate.speed import Speed
    from .export_result import ExportResult

_SHARE = 0.1
"""Share of the time of an export from which on a step is named."""


def figures_of(result: ExportResult) -> list[tuple[str, str]]:
    """Return the measured figures with their names, one line each."""
    rows = [
        ("model", str(result.model)),
        ("attention", _attention(result)),
        *([("auto", result.proposal.summary)] if result.proposal.summary else []),
        *([("settings", result.settings.summary)] if result.settings.summary else []),
        ("graph", _graph(result)),
        ("precision", _precision(result)),
        (f"against {result.source.reference}", _agreement(result.validation)),
    ]
    fidelity = result.fidelity
    rows.append(("against full", _against_full(result)))
    if fidelity.no_bias:
        figures = _figures(fidelity.measure, fidelity.no_bias)
        rows.append(("  bias alone", figures))
    if fidelity.as_trained:
        figures = _figures(fidelity.measure, fidelity.as_trained)
        rows.append(("against trained", figures))
    if result.speed is not None:
        rows.append(("speed", speed_text(result.speed)))
    elif not _runs_on_cpu(result.precision):
        rows.append(
            ("speed", f"not timed: CPUs do not compute in {result.precision}; use `nystra bench`")
        )
    if result.suggestion:
        rows.append(("faster", result.suggestion))
    rows.append(("took", _duration(result.seconds)))
    return rows


def _attention(result: ExportResult) -> str:
    sites = result.source.resolved.items()
    replaced = [site for path, site in sites if path not in result.unchanged]
    counts = Counter(site.name for site in replaced)
    placed = [f"{name} at {pluralize(count, 'site')}" for name, count in counts.items()]
    if result.unchanged:
        placed.append(f"{pluralize(len(result.unchanged), 'site')} not replaced")
    return ", ".join(placed) or "as trained"


def _graph(result: ExportResult) -> str:
    size = result.model.stat().st_size / 1e6
    return f"{result.nodes} nodes, {result.nystra_nodes} of nystra, {size:.2f} MB"


def _duration(seconds: Mapping[str, float]) -> str:
    total = sum(seconds.values())
    longest = sorted(seconds.items(), key=lambda step: -step[1])
    parts = [
        f"{name} {step_seconds:.0f} s"
        for name, step_seconds in longest
        if step_seconds >= _SHARE * total
    ]
    return f"{total:.0f} s: {', '.join(parts)}"


def _precision(result: ExportResult) -> str:
    text = result.precision
    if _runs_on_cpu(text):
        return text
    return f"{text}, which CPUs do not compute in: validated by a rounded float32 copy"


def _runs_on_cpu(precision: str) -> bool:
    from ...runtime.backends import find_backend

    return precision in find_backend("ort-cpu").precisions


def _agreement(validation: FileValidation) -> str:
    sizes = [size for report in validation.reports.values() for size in report["sizes"]]
    shapes = {str(size["shapes"]) for size in sizes}
    nearest = max(sizes, key=lambda size: size["max_abs"] / size["tolerance"])
    text = (
        f"max difference {nearest['max_abs']:.1e} at {pluralize(len(shapes), 'size')} "
        f"(allowed {nearest['tolerance']:.1e}: {_reason(validation, nearest)})"
    )
    failed = [size for size in sizes if size["max_abs"] > size["tolerance"]]
    if failed:
        worst = max(failed, key=lambda size: size["mean_abs"])
        text += (
            f", more at single pixels: mean difference {worst['mean_abs']:.1e} "
            f"(allowed {worst['mean_tolerance']:.1e})"
        )
    return f"{text} in {', '.join(validation.reports)}"


def _reason(validation: FileValidation, size: dict[str, Any]) -> str:
    return validation.allowed_for[validation.tolerances.index(size["tolerance"])]


def speed_text(speed: Speed) -> str:
    """Return the speed of a file relative to full attention."""
    library = "without the library"
    if speed.library:
        library = "with the library"
    low, high = speed.spread
    return (
        f"{speed.ratio:.2f}x as fast as {speed.other} at {speed.size[0]}x{speed.size[1]} "
        f"(median of pairs, half of them {low:.2f}x to {high:.2f}x), medians "
        f"{milliseconds(speed.planned)} and {milliseconds(speed.full)}, {library}"
    )


def _against_full(result: ExportResult) -> str:
    measure = result.fidelity.measure
    values = result.fidelity.plan
    is_best = all(value == measure.best for value in values.values())
    if is_best and result.precision != "fp32":
        return f"same attention as full; the line above includes the rounding of {result.precision}"
    return _figures(measure, values)


def _figures(measure: Measure, values: dict[str, float]) -> str:
    if all(value == measure.best for value in values.values()):
        return "identical"
    mean = measure.text(sum(values.values()) / len(values))
    worst = measure.text(measure.worst(values.values()))
    return f"{mean} on average of {pluralize(len(values), 'image')}, {worst} in the worst"
