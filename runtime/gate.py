"""What ``nystra check`` does: measure a model file and hold it against its baseline."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..plugins.errors import NystraError
from .baseline import ITEMS, PSNR_CEILING, Accepted, Baseline
from .bench_worker import example_feeds
from .benchmark import interleaved
from .json_text import json_number
from .onnx_nodes import count_nodes
from .references import References
from .session import Session
from .validation import DEFAULT_TOLERANCE, QualityReport, validate_against_references

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
DEFAULT_SIZE = (128, 128)


@dataclass
class Measured:
    """The figures of a model file.

    Attributes:
        items: Name of `ITEMS` -> value.
        findings: Name -> what is wrong whatever the baseline says: NaN, a flat picture.
        quality: As in `Baseline`.
        speed: As in `Baseline`.
        tolerance: The largest difference the references were recorded with.
    """

    items: dict[str, float] = field(default_factory=dict)
    findings: dict[str, str] = field(default_factory=dict)
    quality: dict[str, Any] = field(default_factory=dict)
    speed: dict[str, Any] = field(default_factory=dict)
    tolerance: float = DEFAULT_TOLERANCE


@dataclass(frozen=True)
class Verdict:
    """One item of the gate.

    Attributes:
        item: Name of `ITEMS`.
        state: ``passed``, ``failed`` or ``skipped``.
        measured: The value now, or None.
        accepted: The baseline's value.
        limit: The worst value that passes.
        message: One sentence.
    """

    item: str
    state: str
    measured: float | None
    accepted: float
    limit: float
    message: str

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON takes it."""
        numbers = {
            key: None if (value := getattr(self, key)) is None else json_number(value)
            for key in ("measured", "accepted", "limit")
        }
        return {"item": self.item, "state": self.state, "message": self.message, **numbers}


def measure_file(session: Session, references: References) -> Measured:
    """Measure what needs no further input: fidelity, nodes and bytes.

    External weights are counted with the bytes of the model file: every ``<name>.data`` beside.

    Raises:
        NystraError: The references are another model's.
    """
    report = validate_against_references(session, references, math.inf)
    found = Measured(tolerance=_recorded(references))
    found.items["max_abs"] = report.max_abs
    found.items["psnr"] = report.psnr if math.isnan(report.psnr) else min(report.psnr, PSNR_CEILING)
    found.items["nodes"] = count_nodes(session.path)
    weights = session.path.with_name(f"{session.path.name}.data")
    found.items["bytes"] = session.path.stat().st_size + (
        weights.stat().st_size if weights.is_file() else 0
    )
    broken = [text for size in report.sizes for text in size.findings]
    if broken:
        found.findings["max_abs"] = "; ".join(broken)
    return found


def add_quality(found: Measured, report: QualityReport) -> None:
    """Add the figures against ground truth."""
    found.items |= {"quality_psnr": min(report.psnr, PSNR_CEILING), "quality_ssim": report.ssim}
    found.quality = {
        "channel": report.channel,
        "crop_border": report.crop_border,
        "pictures": [picture.name for picture in report.pictures],
    }


def add_speed(
    found: Measured,
    session: Session,
    other: str | os.PathLike[str],
    size: tuple[int, int] | None = None,
    *,
    seconds: float = 10.0,
    threads: int | None = None,
    library: str | Path | None = "auto",
) -> None:
    """Add how many times as fast the model is as another one, in interleaved runs.

    Args:
        found: What to add to.
        session: The model.
        other: The model file it is compared with, in the same backend.
        size: (height, width) of the picture; None takes the model's, or `DEFAULT_SIZE`.
        seconds: As in `interleaved`.
        threads: As in `Session`, of the other one.
        library: As in `Session`, of the other one.

    Raises:
        NystraError: The other model cannot be used.
    """
    sessions = {
        "model": session,
        "other": Session(other, session.backend, threads, library),
    }
    fixed = next((info.fixed_size for info in session.inputs if info.fixed_size), None)
    height, width = size or fixed or DEFAULT_SIZE
    feeds = {name: example_feeds(one, height, width) for name, one in sessions.items()}
    timing = interleaved(
        {
            "model": lambda: sessions["model"].run(feeds["model"]),
            "other": lambda: sessions["other"].run(feeds["other"]),
        },
        seconds,
        warmup=2,
    )
    found.items["speed"] = timing.ratios["other", "model"]
    found.speed = {"against": Path(other).name, "size": [height, width]}


def judge(found: Measured, baseline: Baseline) -> list[Verdict]:
    """Hold figures against a baseline, in the order of `ITEMS`.

    An item of the baseline that was not measured is skipped, and says what it needs.

    Raises:
        NystraError: An item was measured that the baseline lacks, or in another way than there.
    """
    surplus = [name for name in found.items if name not in baseline.items]
    if surplus:
        raise NystraError(
            f"the baseline has no accepted {', '.join(surplus)}: accept the present figures with "
            "--update"
        )
    for key in ("quality", "speed"):
        now, then = getattr(found, key), getattr(baseline, key)
        if now and now != then:
            changed = [name for name in now if now[name] != then.get(name)]
            raise NystraError(
                f"the {key} was measured with another {', '.join(changed)} than the baseline's: "
                + "; ".join(f"got {now[n]}, expected {then.get(n)}" for n in changed)
                + ". Measure alike, or accept with --update"
            )
    return [_verdict(name, found, baseline.items[name]) for name in ITEMS if name in baseline.items]


def accept(found: Measured, model: str, old: Baseline | None) -> Baseline:
    """Return a baseline of these figures; tolerances, and items not measured, stay as they were.

    Args:
        found: The figures.
        model: Name of the model file.
        old: What was there before.
    """
    before: Mapping[str, Accepted] = {} if old is None else old.items
    items = dict(before)
    for name, value in found.items.items():
        kept = before.get(name)
        tolerance = ITEMS[name].tolerance if kept is None else kept.tolerance
        if name == "max_abs" and kept is None:
            tolerance = found.tolerance
        items[name] = Accepted(value, tolerance)
    return Baseline(
        model,
        items,
        found.quality or (old.quality if old else {}),
        found.speed or (old.speed if old else {}),
    )


def _recorded(references: References) -> float:
    limits = references.meta.get("tolerances", DEFAULT_TOLERANCE)
    try:
        return max(map(float, limits)) if isinstance(limits, list) else float(limits)
    except (TypeError, ValueError) as error:
        raise NystraError(
            f"the references hold the tolerances {limits!r}, expected numbers: export again"
        ) from error


def _verdict(name: str, found: Measured, accepted: Accepted) -> Verdict:
    item = ITEMS[name]
    limit = item.limit(accepted.accepted, accepted.tolerance)
    if name not in found.items:
        needs = "--speed-against" if name == "speed" else "--images and --truth"
        text = f"{item.title}: not measured, give {needs}"
        return Verdict(name, SKIPPED, None, accepted.accepted, limit, text)
    measured = found.items[name]
    good = item.passes(measured, limit) and name not in found.findings
    bound = "at most" if item.grows_worse else "at least"
    unit = f" {item.unit}" if item.unit else ""
    text = f"{item.title}: {measured:.6g}{unit}, expected {bound} {limit:.6g}{unit}"
    if item.rule != "ceiling":
        text += f" (accepted {accepted.accepted:.6g}, tolerance {accepted.tolerance:.6g})"
    if name in found.findings:
        text += f"; {found.findings[name]}"
    return Verdict(name, PASSED if good else FAILED, measured, accepted.accepted, limit, text)
