"""``nystra check``: compares a model file with its accepted figures, in a CI job."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import NystraError
from ...core.option import Options, option
from ...core.option_kinds import File, Number, Switch, Words
from ...core.ports.image_sizes import ImageSize
from ...core.ports.port import Size, image_size
from ..console import echo, in_flags, print_command, print_json, print_table, steps, warn
from ..flags.option_flags import (
    REFERENCES,
    add_options,
    add_output_arguments,
    add_session_arguments,
    open_session,
)
from ..flags.quality_flags import add_quality_arguments, check_requested, read_requested_qualities

if TYPE_CHECKING:
    from ...runtime.checking.baseline import Baseline
    from ...runtime.checking.gate import CheckResult
    from ...runtime.checking.measured import Measured
    from ...runtime.session import Session
    from ..flags.quality_flags import Requested

SUMMARY = "Compare a model file with a baseline of accepted figures; exit code 1 on a regression."


@dataclass(frozen=True)
class BaselineOptions(Options):
    """What a file is compared with."""

    baseline: Path | None = option(
        File(None, "the accepted figures", metavar="FILE.json", required=True)
    )
    update: bool = option(Switch("accept the current figures: write the baseline"))
    partial: bool = option(
        Switch("skip items of the baseline that are not measured now (default: an error)")
    )
    references: Path | None = option(REFERENCES)


@dataclass(frozen=True)
class HostOptions(Options):
    """The programs whose rules the file has to meet."""

    hosts: tuple[str, ...] | None = option(
        Words(None, "check the rules of these programs: chainner, vapoursynth (needs onnx)")
    )


@dataclass(frozen=True)
class SpeedOptions(Options):
    """Whether and how it is timed."""

    speed_against: Path | None = option(
        File(None, "compare its speed with that of this model", metavar="OTHER.onnx")
    )
    speed_size: Size | None = option(
        ImageSize(None, "image size of the timing", default_text="the baseline's, or 128x128")
    )
    speed_seconds: float = option(
        Number(10.0, "duration of the timing, in seconds", 0, above=True, metavar="SECONDS")
    )


@dataclass(frozen=True)
class ReportOptions(Options):
    """The reports that are written."""

    junit: Path | None = option(File(None, "write a JUnit report", metavar="FILE.xml"))
    markdown: Path | None = option(File(None, "write a summary", metavar="FILE.md"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("model", type=Path, help=".onnx file")
    add_options(parser, BaselineOptions)
    add_quality_arguments(parser, fixed=True)
    add_options(parser, HostOptions)
    add_options(parser, SpeedOptions)
    add_options(parser, ReportOptions)
    add_session_arguments(parser)
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code: 1 when an item failed."""
    import time

    from ...runtime.checking.baseline import read_baseline
    from ...runtime.checking.gate import FAILED, accept, check_measured

    requested = read_requested_qualities(args)
    start = time.perf_counter()
    fresh = args.update and not args.baseline.exists()
    baseline = None if fresh else read_baseline(args.baseline)
    if baseline is not None and not args.partial and not args.update:
        _check_requested(args, baseline, requested)
    _check_outputs(args)
    if args.hosts is not None:
        from ..hosts import require_hosts

        require_hosts(args.hosts)
    session = open_session(args)
    check_requested(session, requested)
    measured = _measure(args, session, baseline, requested)
    if baseline is not None and not args.partial and not args.update:
        _check_measured(args, baseline, measured)
    if args.update or baseline is None:
        baseline = accept(measured, args.model.name, baseline)
    results = [*check_measured(measured, baseline), *_host_results(args, session)]
    verdicts = [replace(result, message=in_flags(result.message)) for result in results]
    passed = all(verdict.state != FAILED for verdict in verdicts)
    if args.update and passed:
        baseline.write(args.baseline)
    _report(args, verdicts, time.perf_counter() - start)
    updated = args.update and passed
    if args.json:
        print_json(
            {
                "schema_version": 1,
                "passed": passed,
                "updated": updated,
                "model": str(args.model),
                "baseline": str(args.baseline),
                "backend": session.backend,
                "library_reason": session.library_reason,
                "assignment": session.assignment and session.assignment.as_dict(),
                "items": [verdict.as_dict() for verdict in verdicts],
            }
        )
    elif not args.quiet:
        print_table([("item", "verdict", ""), *((v.item, v.state, v.message) for v in verdicts)])
        echo(session.library_reason)
        if args.update:
            state = "written" if updated else "not written: the model fails its own checks"
            echo(f"{args.baseline}: {state}")
    else:
        for verdict in verdicts:
            if verdict.state == FAILED:
                warn(verdict.message)
    return 0 if passed else 1


def _host_results(args: argparse.Namespace, session: Session) -> list[CheckResult]:
    if args.hosts is None:
        return []
    from ..hosts import check_hosts

    return check_hosts(session, args.hosts)


def _check_requested(args: argparse.Namespace, baseline: Baseline, requested: Requested) -> None:
    """Refuse, before anything is measured, to skip an accepted figure silently."""
    from ...runtime.checking.baseline import list_guarded_items
    from ...runtime.tasks.registry import task_qualities

    measured_names = {quality.name for quality, _ in requested}
    for quality in task_qualities().values():
        needed = next(iter(quality.items))
        if needed in baseline.items and quality.name not in measured_names:
            raise _not_measured(args, needed, quality.items[needed].needs)
    if "speed" in baseline.items and args.speed_against is None:
        raise _not_measured(args, "speed", list_guarded_items()["speed"].needs)


def _check_measured(args: argparse.Namespace, baseline: Baseline, measured: Measured) -> None:
    """Refuse the same for figures that depend on the model: flicker, for models of frames."""
    from ...runtime.checking.baseline import list_guarded_items

    for name, item in list_guarded_items().items():
        if item.needs and name in baseline.items and name not in measured.items:
            raise _not_measured(args, name, item.needs)


def _not_measured(args: argparse.Namespace, item: str, needs: str) -> NystraError:
    return NystraError(
        f"the baseline {args.baseline} has {item}, which is not measured: give {needs}, or "
        "`partial` to skip it"
    )


def _measure(
    args: argparse.Namespace, session: Session, baseline: Baseline | None, requested: Requested
) -> Measured:
    from ...runtime.checking.measured import (
        add_outputs,
        add_quality,
        add_speed,
        bodies_of,
        measure_file,
    )
    from ...runtime.model.references import read_references

    with steps(args) as progress:
        progress("compare")
        path = args.references or args.model.with_suffix(".npz")
        references = read_references(path)
        measured = measure_file(session, references, bodies_of(session), progress)
        accepted = None if baseline is None or args.update else baseline.outputs
        record = args.update or baseline is None
        add_outputs(measured, session, references, accepted, record=record)
        for quality, options in requested:
            progress(quality.name)
            add_quality(measured, quality, quality.measure(session, options))
        if args.speed_against is not None:
            progress("speed")
            size = args.speed_size
            if size is None and baseline is not None and "speed" in baseline.settings:
                size = image_size(*baseline.settings["speed"]["size"])
            add_speed(
                measured,
                session,
                args.speed_against,
                size,
                seconds=args.speed_seconds,
            )
    return measured


def _check_outputs(args: argparse.Namespace) -> None:
    from ...core.files.writing import check_can_make

    written = [args.junit, args.markdown, args.baseline if args.update else None]
    for path in written:
        if path is not None:
            check_can_make(path.parent)


def _report(args: argparse.Namespace, verdicts: list[CheckResult], seconds: float) -> None:
    import os
    import sys

    from ...core.files.writing import atomic_write_bytes
    from ...runtime.checking import report

    model: Any = args.model
    if args.junit is not None:
        atomic_write_bytes(args.junit, report.junit(model.name, verdicts, seconds))
    summary = report.markdown(model.name, verdicts)
    if args.markdown is not None:
        atomic_write_bytes(args.markdown, summary.encode("utf-8", "backslashreplace"))
    report.append_step_summary(summary, os.environ)
    for line in report.github_annotations(model, verdicts, os.environ):
        print_command(line, file=sys.stderr if args.json else sys.stdout)
