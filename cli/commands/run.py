"""``nystra run``: use a model file on images and videos."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import NystraError
from ...core.option import Options, option
from ...core.option_kinds import File, Text
from ..console import echo, print_json, print_table, warn
from ..flags.option_flags import (
    add_options,
    add_output_arguments,
    add_session_arguments,
    open_session,
    option_values,
)

if TYPE_CHECKING:
    from ...runtime.options import ClusterOptions
    from ...runtime.session import Session
    from ...runtime.tasks.registry import Report, Summary, Task
    from ...runtime.tasks.result import Result

SUMMARY = "Run a model file on an image, a folder of images or a video."

_LONG = 30.0
"""Seconds between progress lines if the output is not a terminal."""


@dataclass(frozen=True)
class FileOptions(Options):
    """What is read and written."""

    input: Path | None = option(
        File(
            None,
            "image, video, folder, or - for stdin",
            short="i",
            metavar="INPUT",
            required=True,
        )
    )
    output: str | None = option(
        Text(
            None,
            "image, video, folder, or - for stdout; for a classifier a .csv or .json file",
            short="o",
            metavar="OUTPUT",
            default_text="a table",
        )
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = (
        "Exit codes: 0 all images done or skipped; 1 the model's output cannot be right; 2 "
        "at least one image failed otherwise (the others of a folder are still written); 3 a "
        "backend is missing."
    )
    parser.add_argument("model", type=Path, help=".onnx file")
    add_options(parser, FileOptions)
    add_output_arguments(parser)
    added = {"quiet"}  # of every command
    for record in _records():
        group = parser.add_argument_group(record.heading) if record.heading else parser
        add_options(group, record, [name for name in record.list_options() if name not in added])
        added |= record.list_options().keys()
    _add_cluster_arguments(parser)
    add_session_arguments(parser)


def _records() -> list[type[Options]]:
    from ...runtime.tasks.registry import TASKS

    return list(dict.fromkeys(record() for row in TASKS for record in row.options))


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code, the largest one of the images of a folder."""
    from ...runtime.tasks.registry import find_task

    prints = args.output == "-" or (args.output is None and args.format is not None)
    if args.json and prints:
        raise NystraError("--json and an output on stdout contradict each other: give one")
    cluster = _cluster_options(args)
    if cluster is None:
        _check_threads(args.threads)
    begin = time.perf_counter()
    session = open_session(args, args.tile or None)
    if not args.quiet:
        _print_how_it_runs(session, verbose=args.verbose)
    task = find_task(session)
    options = _options(args, task, session.facts.task)
    summary = task.summary()
    if cluster is not None and not task.distributed:
        raise NystraError(
            f"--ray does not apply to a model of the task {session.facts.task!r}: omit it"
        )
    results = task.run()(
        session,
        args.input,
        args.output,
        *options,
        report=_reporter(summary, quiet=args.quiet, verbose=args.verbose),
        **({"cluster": cluster} if task.distributed else {}),
    )
    if args.json:
        print_json(
            {
                "library_reason": session.library_reason,
                "assignment": session.assignment and session.assignment.as_dict(),
                "images": [result.as_dict() for result in results],
            }
        )
    elif not args.quiet and not prints:
        rows = summary.rows(results)
        if len(rows) > 1 and (not args.verbose or not task.needs_output):
            print_table(rows)
        if args.input.is_dir() and all(result.things == "images" for result in results):
            echo(_counts(results, time.perf_counter() - begin))
    for result in results:
        for text in result.warnings:
            warn(f"{result.input}: {text}")
    failed = [result for result in results if result.status == "failed"]
    for result in failed:
        warn(f"{result.input} failed: {result.error}")
    return max((result.exit_code or 2 for result in failed), default=0)


def _options(args: argparse.Namespace, task: Task, name: str) -> list[Options]:
    if args.output is None and task.needs_output:
        raise NystraError(f"a model of the task {name!r} needs an output: give -o")
    own = [record() for record in task.options]
    applicable = {"quiet"}.union(
        *(record.list_options() for record in own)
    )  # quiet: of every command
    others = {key: kind for record in _records() for key, kind in record.list_options().items()}
    foreign = [
        f"`{key}`"
        for key in sorted(others.keys() - applicable)
        if getattr(args, key) != others[key].default
    ]
    if foreign:
        raise NystraError(f"{', '.join(foreign)}: does not apply to a model of the task {name!r}")
    return [record(**option_values(args, record)) for record in own]


def _check_threads(threads: int | None) -> None:
    cores = os.cpu_count() or 1
    if threads is not None and threads > cores:
        warn(f"--threads {threads} on {cores} cores: more threads than cores are slower")


def _print_how_it_runs(session: Session, *, verbose: bool) -> None:
    if session.library_missing:
        echo(
            "note: built without the operator library; linear attention runs on standard "
            "operators, often slower. `nystra inspect` explains.",
            file=sys.stderr,
        )
    if verbose:
        echo(session.library_reason, file=sys.stderr)


def _reporter(summary: Summary, *, quiet: bool, verbose: bool) -> Report | None:
    from ...runtime.progress import wants_bar

    if quiet or (wants_bar() and not verbose):
        return None
    counts: Counter[str] = Counter()
    begin = last = time.perf_counter()

    def report(result: Result, done: int, total: int) -> None:
        nonlocal last
        counts[result.status] += 1
        if verbose:
            echo(f"{done} of {total}: {summary.line(result)}", file=sys.stderr, flush=True)
            return
        now = time.perf_counter()
        if done < total and (done % max(10, total // 20) == 0 or now - last > _LONG):
            failed = f", {counts['failed']} failed" if counts["failed"] else ""
            remaining = _duration((now - begin) / done * (total - done))
            echo(
                f"{done} of {total} {result.things}{failed}, {remaining} left",
                file=sys.stderr,
                flush=True,
            )
            last = now

    return report


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _counts(results: Sequence[Result], seconds: float) -> str:
    counts = Counter(result.status for result in results)
    strange = [result.input for result in results if result.reason == "no image"]
    existing = counts["skipped"] - len(strange)
    reasons = [f"{existing} with existing outputs"] if existing else []
    if strange:
        names = ", ".join(Path(path).name for path in strange[:3])
        reasons.append(f"{len(strange)} not images: {names}{', ...' if strange[3:] else ''}")
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return (
        f"{counts['done']} done, {counts['failed']} failed, {counts['skipped']} skipped{why} in "
        f"{seconds:.1f} s"
    )


def _add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    from ...runtime.options import ClusterOptions

    cluster = parser.add_argument_group("several machines (needs the extra ray)")
    add_options(cluster, ClusterOptions, ("address", "workers"))
    cluster.set_defaults(address=None)  # no cluster


def _cluster_options(args: argparse.Namespace) -> ClusterOptions | None:
    if args.address is None:
        if args.workers is not None:
            raise NystraError("--workers goes with --ray local or --ray HOST:PORT: give one")
        return None
    if args.jobs is not None:
        raise NystraError("--jobs and --ray contradict each other: use --workers with --ray")
    from ...runtime.options import ClusterOptions

    threads = 1 if args.threads is None else args.threads
    return ClusterOptions(args.address, args.workers, threads, args.library)
