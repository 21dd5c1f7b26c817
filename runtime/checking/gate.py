"""What ``nystra check`` does: measure a model file and compare it with its baseline."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...core.errors import NystraError
from ...core.json_text import json_number
from ...core.metadata import without_provenance
from ...core.ports.examples import example_arrays
from ...core.ports.port import Size, picture_size
from ..machine.clock import interleaved
from ..metrics.measures import FIGURES, PSNR_CEILING, ROUNDING
from ..model.onnx_nodes import count_nodes
from ..model.references import References
from ..session import Session
from ..tasks.quality import Quality, QualityReport
from .baseline import Accepted, Baseline, guarded_items
from .integrity import find_changes, metadata_changes
from .validation import SizeReport, ValidationReport, allowed_differences, compare, sides_text

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
FILE = "file"
"""The item that is no figure: whether the file is the one that was exported and accepted."""
DEFAULT_SIZE = picture_size(128, 128)


@dataclass
class Measured:
    """The figures of a model file.

    Attributes:
        items: Name among `guarded_items` -> value.
        findings: Name -> what is wrong whatever the baseline says: NaN, a flat picture.
        settings: As in `Baseline`.
        tolerance: The largest difference the references were recorded with, at any size.
        sizes: The recorded sizes behind ``max_abs`` and the `FIGURES`, with their own tolerances.
        changes: In what the file is not what was exported, see `find_changes`.
        metadata: Of the model, as in `Baseline`.
    """

    items: dict[str, float] = field(default_factory=dict)
    findings: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    tolerance: float = ROUNDING
    sizes: tuple[SizeReport, ...] = ()
    changes: tuple[str, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckResult:
    """One item of the gate.

    Attributes:
        item: Name among `guarded_items`, or `FILE`.
        state: ``passed``, ``failed`` or ``skipped``.
        measured: The value now, or None.
        accepted: The baseline's value, or None.
        limit: The worst value that passes, or None.
        message: One sentence.
    """

    item: str
    state: str
    measured: float | None
    accepted: float | None
    limit: float | None
    message: str

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON takes it."""
        numbers = {
            key: None if (value := getattr(self, key)) is None else json_number(value)
            for key in ("measured", "accepted", "limit")
        }
        return {"item": self.item, "state": self.state, "message": self.message, **numbers}


def measure_file(
    session: Session, references: References, bodies: Session | None = None
) -> Measured:
    """Measure what needs no further input: fidelity, nodes, bytes, and whether the file is whole.

    External weights, ``<name>.data`` in its folder, are counted with the bytes of the model file.

    Args:
        session: The model.
        references: Its recorded outputs.
        bodies: The model on its operators' bodies, measured too: the worse figure counts.

    Raises:
        NystraError: The references are another model's.
    """
    limits = allowed_differences(references, precision=session.precision)
    runners = [session] if bodies is None else [session, bodies]
    anything = [(math.inf, None)] * len(limits)
    reports = [compare(runner, references, anything) for runner in runners]
    report = ValidationReport(tuple(size for each in reports for size in each.sizes))
    measured = Measured(tolerance=max(largest for largest, _ in limits))
    measured.sizes = tuple(
        replace(size, tolerance=largest, mean_tolerance=mean)
        for size, (largest, mean) in zip(report.sizes, limits * len(runners), strict=True)
    )
    measured.changes = tuple(find_changes(session, references))
    measured.metadata = without_provenance(session.metadata)
    measured.items["max_abs"] = report.max_abs
    measured.items |= {
        name: value if math.isnan(value) else min(value, PSNR_CEILING)
        for name, value in report.figures.items()
    }
    if session.kind.artefact == "onnx":
        measured.items["nodes"] = count_nodes(session.path)
    weights = session.path.with_name(f"{session.path.name}.data")
    measured.items["bytes"] = session.path.stat().st_size + (
        weights.stat().st_size if weights.is_file() else 0
    )
    broken = [text for size in report.sizes for text in size.findings]
    if broken:
        measured.findings["max_abs"] = "; ".join(broken)
    return measured


def add_quality(measured: Measured, quality: Quality, report: QualityReport) -> None:
    """Add the figures against what is known of inputs."""
    measured.items |= report.figures()
    measured.settings[quality.name] = report.settings()


def add_speed(
    measured: Measured,
    session: Session,
    other: str | os.PathLike[str],
    size: Size | None = None,
    *,
    seconds: float = 10.0,
) -> None:
    """Add how many times as fast the model is as another one, in interleaved runs.

    Args:
        measured: What to add to.
        session: The model.
        other: The model file it is compared with, run in the same way.
        size: Of the inputs; None takes the model's own, or `DEFAULT_SIZE`.
        seconds: As in `interleaved`.

    Raises:
        NystraError: The other model cannot be used.
    """
    opened = Session.open(replace(session.spec, model=Path(other)))
    sessions = {"model": session, "other": opened}
    taken = size or session.facts.sides or DEFAULT_SIZE
    feeds = {
        name: example_arrays(session.facts.inputs, taken) for name, session in sessions.items()
    }
    timing = interleaved(
        {
            "model": lambda: sessions["model"].run(feeds["model"]),
            "other": lambda: sessions["other"].run(feeds["other"]),
        },
        seconds,
        warmup=2,
    )
    measured.items["speed"] = timing.ratios["other", "model"]
    measured.settings["speed"] = {"against": Path(other).name, "size": list(taken.values())}


def check_measured(measured: Measured, baseline: Baseline) -> list[CheckResult]:
    """Compare a file and its figures with a baseline: in the order of `guarded_items`, then `FILE`.

    The difference from the references is checked size by size, as ``nystra validate`` does: each
    size has the tolerance it was recorded with, and where a seeded search takes part the mean may
    stand in for it, which then also excuses the other figures of that size. A tolerance of the
    baseline below the recorded ones holds for all sizes, one above all of them takes their place.

    An item of the baseline that was not measured is skipped, and says what it needs.

    Raises:
        NystraError: An item was measured that the baseline lacks, or in another way than there.
    """
    surplus = [name for name in measured.items if name not in baseline.items]
    if surplus:
        raise NystraError(
            f"the baseline has no accepted {', '.join(surplus)}: accept the present figures with "
            "`update`"
        )
    for key, now in measured.settings.items():
        then = baseline.settings.get(key, {})
        if now != then:
            changed = [name for name in now if now[name] != then.get(name)]
            raise NystraError(
                f"the {key} was measured with another {', '.join(changed)} than the baseline's: "
                + "; ".join(f"got {now[n]}, expected {then.get(n)}" for n in changed)
                + ". Measure alike, or accept with `update`"
            )
    figures = [
        _item_result(name, measured, baseline.items[name])
        for name in guarded_items()
        if name in baseline.items
    ]
    return [*figures, _file_result(measured, baseline)]


def accept(measured: Measured, model: str, old: Baseline | None) -> Baseline:
    """Return a baseline of these figures; tolerances, and items not measured, stay as they were.

    Args:
        measured: The figures.
        model: Name of the model file.
        old: What was there before.
    """
    before: Mapping[str, Accepted] = {} if old is None else old.items
    items, known = dict(before), guarded_items()
    for name, value in measured.items.items():
        kept = before.get(name)
        tolerance = known[name].tolerance if kept is None else kept.tolerance
        if name == "max_abs" and kept is None:
            tolerance = measured.tolerance
        items[name] = Accepted(value, tolerance)
    return Baseline(
        model,
        items,
        {**(old.settings if old else {}), **measured.settings},
        measured.metadata,
    )


def _file_result(measured: Measured, baseline: Baseline) -> CheckResult:
    changes = list(measured.changes)
    if baseline.metadata is not None:
        changes += metadata_changes(baseline.metadata, measured.metadata)
    good = "what was exported and accepted"
    if baseline.metadata is None:
        good = "what was exported; the baseline records no metadata: accept them with `update`"
    text = "; ".join(changes) or good
    return CheckResult(FILE, FAILED if changes else PASSED, None, None, None, f"model file: {text}")


def _item_result(name: str, measured: Measured, accepted: Accepted) -> CheckResult:
    item = guarded_items()[name]
    limit = item.limit(accepted.accepted, accepted.tolerance)
    if name not in measured.items:
        text = f"{item.title}: not measured" + (f", give {item.needs}" if item.needs else "")
        return CheckResult(name, SKIPPED, None, accepted.accepted, limit, text)
    value = measured.items[name]
    sizes = _size_by_size(name, measured, limit)
    good = item.passes(value, limit) if sizes is None else not sizes.wrong
    good = good and name not in measured.findings
    bound = "at most" if item.grows_worse else "at least"
    unit = f" {item.unit}" if item.unit else ""
    text = f"{item.title}: {value:.6g}{unit}, expected {bound} {limit:.6g}{unit}"
    if item.rule != "ceiling":
        text += f" (accepted {accepted.accepted:.6g}, tolerance {accepted.tolerance:.6g})"
    if sizes is not None:
        text += "".join(f"; {words}" for words in sizes.wrong or sizes.excused)
    if name in measured.findings:
        text += f"; {measured.findings[name]}"
    return CheckResult(name, PASSED if good else FAILED, value, accepted.accepted, limit, text)


@dataclass(frozen=True)
class _Sizes:
    """What is to be said of single sizes: those that fail, and those that the mean excuses."""

    wrong: tuple[str, ...]
    excused: tuple[str, ...]


def _size_by_size(name: str, measured: Measured, limit: float) -> _Sizes | None:
    """Check the recorded sizes; None for an item that has none."""
    if name not in ("max_abs", *FIGURES) or not measured.sizes:
        return None
    wrong: list[str] = []
    excused: list[str] = []
    for size in measured.sizes:
        where = sides_text(size.shapes)
        if name in FIGURES:
            if name not in size.figures:
                continue
            good = guarded_items()[name].passes(size.figures[name], limit)
            text = f"at {where} it is {size.figures[name]:.6g}"
        else:
            allowed = limit if limit > measured.tolerance else min(limit, size.tolerance)
            good = size.max_abs <= allowed
            text = f"at {where} it is {size.max_abs:.3g}, allowed is {allowed:.3g}"
        if good:
            continue
        text += f", the mean {size.mean_abs:.3g}"
        if size.mean_tolerance is not None:
            text += f", allowed is {size.mean_tolerance:.3g}"
        within = size.mean_tolerance is not None and size.mean_abs <= size.mean_tolerance
        (excused if within else wrong).append(text)
    return _Sizes(tuple(wrong), tuple(excused))
