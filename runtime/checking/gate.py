"""What ``nystra check`` decides: a measured model file against its baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core.errors import NystraError
from ...core.json_text import json_number
from ..metrics.measures import FIGURES
from .accepted_outputs import difference_text
from .baseline import DIGESTS, KERNELS, Accepted, Baseline, list_guarded_items
from .measured import BY_BODIES, Measured, metadata_changes
from .validation import sides_text

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
FILE = "file"
"""The item without a figure: whether the file is the one that was exported and accepted."""
OUTPUTS = "outputs"
"""The item of the differences from the accepted outputs."""


@dataclass(frozen=True)
class CheckResult:
    """One item of the gate.

    Attributes:
        item: Name among `list_guarded_items`, a key of `DIGESTS`, `FILE`, `OUTPUTS`, or another
            check.
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
        """Return the JSON form of the result."""
        numbers = {}
        for key in ("measured", "accepted", "limit"):
            value = getattr(self, key)
            numbers[key] = None if value is None else json_number(value)
        return {"item": self.item, "state": self.state, "message": self.message, **numbers}


def check_measured(measured: Measured, baseline: Baseline) -> list[CheckResult]:
    """Compare a file and its figures with a baseline.

    The results come in the order of `list_guarded_items`, then `OUTPUTS`, `FILE` and `DIGESTS`.

    The difference from the references is checked size by size, as ``nystra validate`` does: each
    size has its recorded tolerance; with a seeded search a size also passes by its mean difference,
    and its other figures are then not checked. A tolerance of the baseline below the recorded ones
    applies to all sizes, one above all of them replaces them.

    An item of the baseline that was not measured is skipped, with a message about what it needs. So
    are items that baselines of earlier versions do not contain: `KERNELS` and the digests.

    Raises:
        NystraError: An item was measured that the baseline lacks, or with other settings.
    """
    surplus = [name for name in measured.items if name not in {*baseline.items, KERNELS}]
    if surplus:
        raise NystraError(
            f"the baseline has no {', '.join(surplus)}: accept the current figures with `update`; "
            "see docs/ci.md"
        )
    for key, now in measured.settings.items():
        then = baseline.settings.get(key, {})
        if now != then:
            changed = [name for name in now if now[name] != then.get(name)]
            raise NystraError(
                f"the {key} was measured with different settings ({', '.join(changed)}) than the "
                "baseline's: "
                + "; ".join(f"got {now[n]}, expected {then.get(n)}" for n in changed)
                + ". Use the same settings, or accept the current figures with `update`; "
                "see docs/ci.md"
            )
    figures = []
    for name, item in list_guarded_items().items():
        if name in baseline.items:
            figures.append(_item_result(name, measured, baseline.items[name]))
        elif name in measured.items:
            figures.append(_describe_unrecorded(name, item.title, measured.items[name]))
    return [
        *figures,
        *_output_results(measured, baseline),
        _file_result(measured, baseline),
        *_digest_results(measured, baseline),
    ]


def accept(measured: Measured, model: str, old: Baseline | None) -> Baseline:
    """Return a baseline of these figures; tolerances, and items not measured, stay as they were.

    Args:
        measured: The figures.
        model: Name of the model file.
        old: The baseline to update.
    """
    before: Mapping[str, Accepted] = {} if old is None else old.items
    items, guarded = dict(before), list_guarded_items()
    for name, value in measured.items.items():
        accepted = before.get(name)
        tolerance = guarded[name].tolerance if accepted is None else accepted.tolerance
        if name == "max_abs" and accepted is None:
            tolerance = measured.tolerance
        items[name] = Accepted(value, tolerance)
    return Baseline(
        model,
        items,
        {**(old.settings if old else {}), **measured.settings},
        measured.metadata,
        {**(old.digests if old else {}), **measured.digests},
        measured.recorded,
    )


def _output_results(measured: Measured, baseline: Baseline) -> list[CheckResult]:
    """Return the result of the accepted outputs, if they were compared.

    Both files may differ from the references by the tolerance, hence twice that is allowed.
    """
    title = "outputs"
    if baseline.outputs is None:
        text = f"{title}: the baseline holds none: `update` adds them where they are small"
        return [CheckResult(OUTPUTS, SKIPPED, None, None, None, text)]
    if measured.outputs is None:
        return []
    if isinstance(measured.outputs, str):
        text = f"{title}: cannot be compared with the accepted ones: {measured.outputs}"
        return [CheckResult(OUTPUTS, FAILED, None, 0.0, None, text)]
    report = measured.outputs
    limit = measured.tolerance
    if "max_abs" in baseline.items:
        limit = baseline.items["max_abs"].tolerance
    means = [size.mean_tolerance for size in measured.sizes if size.mean_tolerance is not None]
    good = report.max_abs <= 2 * limit or (bool(means) and report.mean_abs <= 2 * max(means))
    text = f"{title}: {difference_text(report)} against the accepted ones, allowed {2 * limit:.3g}"
    state = PASSED if good else FAILED
    return [CheckResult(OUTPUTS, state, report.max_abs, 0.0, 2 * limit, text)]


def _file_result(measured: Measured, baseline: Baseline) -> CheckResult:
    changes = list(measured.changes)
    if baseline.metadata is not None:
        changes += metadata_changes(baseline.metadata, measured.metadata)
    accepted = "its metadata equals the accepted metadata"
    if baseline.metadata is None:
        accepted = "the baseline records no metadata: accept it with `update`"
    exported = "it equals the file in its manifest"
    if not measured.listed:
        exported = "whether it is the exported file is unknown: no manifest names it"
    text = "; ".join(changes or [exported, accepted])
    return CheckResult(FILE, FAILED if changes else PASSED, None, None, None, f"model file: {text}")


def _digest_results(measured: Measured, baseline: Baseline) -> list[CheckResult]:
    results = []
    for key, title in DIGESTS.items():
        now, then = measured.digests.get(key), baseline.digests.get(key)
        if now is None and then is None:
            continue
        if then is None:
            results.append(_describe_unrecorded(key, title))
            continue
        if now is None:
            state, text = SKIPPED, "not measured: the backend does not open ONNX files"
        elif now == then:
            state, text = PASSED, "equal the accepted ones"
        else:
            state = FAILED
            text = (
                f"differ from the accepted ones (SHA-256 {now:.16}..., accepted {then:.16}...): "
                "if that is intended, accept them with `update`"
            )
        results.append(CheckResult(key, state, None, None, None, f"{title}: {text}"))
    return results


def _describe_unrecorded(item: str, title: str, value: float | None = None) -> CheckResult:
    """Return the result of an item that baselines of earlier versions do not contain."""
    text = (
        f"{title}: the baseline was written by an earlier version without this item: add it with "
    )
    return CheckResult(item, SKIPPED, value, None, None, f"{text}`update`")


def _item_result(name: str, measured: Measured, accepted: Accepted) -> CheckResult:
    item = list_guarded_items()[name]
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
    if name == KERNELS and not good:
        text += f"; {measured.library_reason}"
    return CheckResult(name, PASSED if good else FAILED, value, accepted.accepted, limit, text)


@dataclass(frozen=True)
class _Sizes:
    wrong: tuple[str, ...]
    excused: tuple[str, ...]


def _size_by_size(name: str, measured: Measured, limit: float) -> _Sizes | None:
    if name not in ("max_abs", *FIGURES) or not measured.sizes:
        return None
    wrong: list[str] = []
    excused: list[str] = []
    placed = [(size, "") for size in measured.sizes]
    placed += [(size, BY_BODIES) for size in measured.body_sizes]
    for size, by in placed:
        where = sides_text(size.shapes) + by
        if name in FIGURES:
            if name not in size.figures:
                continue
            good = list_guarded_items()[name].passes(size.figures[name], limit)
            text = f"at {where} it is {size.figures[name]:.6g}"
        else:
            allowed = limit if limit > measured.tolerance else min(limit, size.tolerance)
            good = size.max_abs <= allowed
            text = f"at {where} it is {size.max_abs:.3g}, allowed {allowed:.3g}"
        if good:
            continue
        text += f", the mean {size.mean_abs:.3g}"
        if size.mean_tolerance is not None:
            text += f", allowed is {size.mean_tolerance:.3g}"
        within = size.mean_tolerance is not None and size.mean_abs <= size.mean_tolerance
        (excused if within else wrong).append(text)
    return _Sizes(tuple(wrong), tuple(excused))
