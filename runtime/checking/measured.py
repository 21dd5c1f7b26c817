"""The figures of a model file that the CI gate compares, and its digests."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...core.errors import BackendUnavailableError
from ...core.metadata import without_provenance
from ...core.ports.examples import example_arrays
from ...core.ports.port import SIDES, Size, image_size, join_sides
from ...plugins.domain import DOMAIN
from ..metrics.measures import PSNR_CEILING, ROUNDING
from ..model.external_data import weights_digest
from ..model.manifest import Manifest
from ..model.onnx_graph import count_nodes, domain_nodes
from ..model.onnx_header import read_onnx_header
from ..model.references import RECORDED_METADATA, ReferenceCase, References
from ..session import Session
from ..tasks.quality import Quality, QualityReport
from ..timing.turns import median_ratio, time_interleaved
from .accepted_outputs import compare_outputs, record_outputs
from .baseline import KERNELS
from .validation import (
    Limit,
    SizeReport,
    ValidationReport,
    compare,
    find_allowed_differences,
    further_differences,
)


def find_changes(session: Session, references: References) -> list[str]:
    """Return a sentence for every difference between a file and what was exported.

    The hashes of a manifest next to it are checked, its metadata if the references recorded them,
    and its scale if it has one.

    Raises:
        NystraError: The manifest next to the file cannot be read.
    """
    manifest = Manifest.for_model(session.path)
    changes = [] if manifest is None else manifest.problems(session.path.parent)
    recorded = references.meta.get(RECORDED_METADATA)
    if isinstance(recorded, dict):
        changes += metadata_changes(recorded, session.metadata, "recorded")
    return changes + _scale_changes(session, references)


def is_listed(session: Session) -> bool:
    """Return whether a manifest next to a file lists its hash, which `find_changes` looks at.

    Raises:
        NystraError: The manifest cannot be read.
    """
    manifest = Manifest.for_model(session.path)
    return manifest is not None and session.path.name in manifest.files


def metadata_changes(
    before: Mapping[str, str], now: Mapping[str, str], word: str = "accepted"
) -> list[str]:
    """Return a sentence for every metadata entry that was changed."""
    return [
        f"its metadata entry {key} is {_excerpt(now.get(key), before.get(key))}, {word} was "
        f"{_excerpt(before.get(key), now.get(key))}"
        for key in sorted({*before, *now})
        if before.get(key) != now.get(key)
    ]


def bodies_of(session: Session) -> Session | None:
    """Return the model on its operators' bodies if the session runs kernels instead.

    None if it runs the bodies already, if the file has none, if the backend runs none or refuses
    these, and with a requested precision, in which bodies round at every step.
    """
    if session.library is None or not session.kind.bodies:
        return None
    if session.precision is not None:
        return None
    if not read_onnx_header(session.path).functions:
        return None
    try:
        return Session.open(replace(session.spec, library="none"))
    except BackendUnavailableError:
        return None


def _scale_changes(session: Session, references: References) -> list[str]:
    scale, image, restored = session.facts.scale, session.facts.image, session.facts.output_image
    if scale is None or image is None or restored is None or not set(SIDES) <= {*restored.axes}:
        return []
    changes = []
    for case in references.cases:
        if image.name not in case.inputs or restored.name not in case.outputs:
            continue
        input_sides = case.inputs[image.name].shape[-2:]
        output_sides = case.outputs[restored.name].shape[-2:]
        if output_sides != tuple(side * scale for side in input_sides):
            sizes = " to ".join(join_sides(sides) for sides in (input_sides, output_sides))
            changes.append(f"its metadata entry scale is {scale}, and its images go from {sizes}")
    return changes


def _excerpt(value: str | None, other: str | None) -> str:
    if value is None:
        return "absent"
    if len(value) <= 60:
        return repr(value)
    pairs = zip(value, other or "", strict=False)
    same = next((place for place, (first, second) in enumerate(pairs) if first != second), 0)
    return f"...{value[max(0, same - 20) : same + 40]!r}..."


DEFAULT_SIZE = image_size(128, 128)
BY_BODIES = " by the operators' bodies"
"""The suffix of a size that was also computed without the operator library."""


@dataclass
class Measured:
    """The figures of a model file.

    Attributes:
        items: Name among `list_guarded_items` -> value.
        findings: Name -> what is wrong with any baseline: NaN, a flat image.
        settings: As in `Baseline`.
        tolerance: The largest difference the references were recorded with, at any size.
        sizes: The recorded sizes behind ``max_abs`` and the `FIGURES`, with their own tolerances.
        body_sizes: The same, computed by the operators' bodies next to the kernels.
        changes: Differences between the file and what was exported, see `find_changes`.
        listed: Its manifest lies next to it, and lists its hash.
        metadata: Metadata of the model, as in `Baseline`.
        digests: As in `Baseline`.
        outputs: The differences from the accepted outputs, or why there are none; None without
            accepted ones.
        recorded: The outputs that a baseline of these figures holds; None if they are too large.
        library_reason: Why operators are computed by the library, or why not.
    """

    items: dict[str, float] = field(default_factory=dict)
    findings: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    tolerance: float = ROUNDING
    sizes: tuple[SizeReport, ...] = ()
    body_sizes: tuple[SizeReport, ...] = ()
    changes: tuple[str, ...] = ()
    listed: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    outputs: SizeReport | str | None = None
    recorded: ReferenceCase | None = None
    library_reason: str = ""


def measure_file(
    session: Session,
    references: References,
    bodies: Session | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> Measured:
    """Measure what needs no further input: fidelity, nodes, kernels, bytes, identity of the file.

    External weights, ``<name>.data`` in its folder, are counted with the bytes of the model file.

    Args:
        session: The model.
        references: Its recorded outputs.
        bodies: The model on its operators' bodies, measured too: the worse figure counts.
        progress: Called with the name of each step.

    Raises:
        NystraError: The references are another model's.
    """
    limits = find_allowed_differences(references, precision=session.precision)
    measured = Measured(tolerance=max(largest for largest, _ in limits))
    measured.sizes = _sizes(session, references, limits, progress)
    if bodies is not None:
        measured.body_sizes = _sizes(
            bodies, references, limits, lambda step: progress(f"{step} by bodies")
        )
    report = ValidationReport(measured.sizes + measured.body_sizes)
    measured.changes = tuple(find_changes(session, references))
    measured.listed = is_listed(session)
    measured.metadata = without_provenance(session.metadata)
    measured.digests["references"] = references.digest()
    measured.library_reason = session.library_reason
    measured.items["max_abs"] = report.max_abs
    measured.items |= {
        name: value if math.isnan(value) else min(value, PSNR_CEILING)
        for name, value in report.figures.items()
    }
    if session.kind.artifact == "onnx":
        measured.digests["weights"] = weights_digest(session.path)
        measured.items["nodes"] = count_nodes(session.path)
        if session.kind.library_name is not None:
            served = session.operators == "kernels"
            measured.items[KERNELS] = len(domain_nodes(session.path, DOMAIN)) if served else 0
    weights = session.path.with_name(f"{session.path.name}.data")
    measured.items["bytes"] = session.path.stat().st_size + (
        weights.stat().st_size if weights.is_file() else 0
    )
    broken = [text for size in measured.sizes for text in size.findings]
    broken += [f"{text}{BY_BODIES}" for size in measured.body_sizes for text in size.findings]
    if broken:
        measured.findings["max_abs"] = "; ".join(broken)
    return measured


def add_outputs(
    measured: Measured,
    session: Session,
    references: References,
    accepted: ReferenceCase | None,
    *,
    record: bool,
) -> None:
    """Add how the outputs differ from accepted ones, and those that a new baseline holds.

    Args:
        measured: What to add to.
        session: The model.
        references: Its references.
        accepted: The accepted outputs, if there are any.
        record: Whether the outputs of now are needed.
    """
    if accepted is not None:
        measured.outputs = compare_outputs(session, accepted, references)
    if record:
        measured.recorded = record_outputs(session, references)


def _sizes(
    runner: Session,
    references: References,
    limits: Sequence[Limit],
    progress: Callable[[str], None],
) -> tuple[SizeReport, ...]:
    further = further_differences(references, precision=runner.precision)
    report = compare(runner, references, [(math.inf, None)] * len(limits), further, progress)
    return tuple(
        replace(size, tolerance=largest, mean_tolerance=mean)
        for size, (largest, mean) in zip(report.sizes, limits, strict=True)
    )


def add_quality(measured: Measured, quality: Quality, report: QualityReport) -> None:
    """Add the figures against ground truth or labels."""
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
        size: Size of the inputs; None takes the model's own, or `DEFAULT_SIZE`.
        seconds: As in `time_interleaved`.

    Raises:
        NystraError: The other model cannot be used.
    """
    opened = Session.open(replace(session.spec, model=Path(other)))
    sessions = {"model": session, "other": opened}
    sides = size or session.facts.sides or DEFAULT_SIZE
    feeds = {
        name: example_arrays(session.facts.inputs, sides) for name, session in sessions.items()
    }
    times = time_interleaved(
        {
            "model": lambda: sessions["model"].run(feeds["model"]),
            "other": lambda: sessions["other"].run(feeds["other"]),
        },
        seconds,
        warmup=2,
    )
    measured.items["speed"] = median_ratio(times["other"], times["model"])
    measured.settings["speed"] = {"against": Path(other).name, "size": list(sides.values())}
