"""``nystra run``: restore pictures and videos with a model file."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...plugins.errors import NystraError
from .common import add_output_arguments, add_session_arguments, print_json, print_table, warn
from .saying import say
from .video_flags import add_video_arguments, video_options

if TYPE_CHECKING:
    from ...runtime.restoring.options import RunOptions
    from ...runtime.session import Session

SUMMARY = "Restore a picture, a folder of pictures or a video with a model file."

_LONG = 30.0
"""Seconds after which a run that nobody watches says where it is."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = (
        "Exit codes: 0 all pictures done or skipped; 2 at least one failed (in a folder the others "
        "are written all the same) or nothing could be done; 3 a backend is missing."
    )
    parser.add_argument("model", type=Path, help=".onnx file")
    parser.add_argument(
        "-i", "--input", type=Path, required=True, help="picture, video, folder, or - for stdin"
    )
    parser.add_argument(
        "-o", "--output", required=True, help="picture, video, folder, or - for stdout"
    )
    parser.add_argument(
        "-t",
        "--tile",
        type=int,
        default=0,
        metavar="N",
        help="tile side in input pixels, 0 = by the memory (default: 0)",
    )
    parser.add_argument(
        "--overlap", type=int, metavar="N", help="overlap of the tiles, in input pixels"
    )
    parser.add_argument(
        "--max-memory",
        metavar="BYTES",
        help="what the process may take in all, such as 4G (default: what is free)",
    )
    parser.add_argument(
        "--mask",
        type=Path,
        metavar="FILE|FOLDER",
        help="of a model that fills holes: white = fill, same size as the picture",
    )
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="FILE|FOLDER",
        help="of a model that copies from another picture",
    )
    outputs = parser.add_argument_group("outputs")
    outputs.add_argument("--overwrite", action="store_true", help="replace existing outputs")
    outputs.add_argument(
        "--skip-existing",
        action="store_true",
        help="leave out pictures whose output exists: go on where a run stopped",
    )
    outputs.add_argument(
        "--recursive", action="store_true", help="take the pictures of subfolders too"
    )
    outputs.add_argument(
        "--format", metavar="NAME", help="png, jpg, tif or webp (default: the input's, else png)"
    )
    outputs.add_argument(
        "--suffix", default="", metavar="TEXT", help="behind the names in a folder, such as _x2"
    )
    outputs.add_argument(
        "--quality",
        type=int,
        metavar="N",
        help="of JPEG (default: 95) and of WebP (default: lossless), 1 to 100",
    )
    add_video_arguments(parser)
    add_session_arguments(parser)
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Carry the command out; return the exit code: 2 when a picture of a folder failed."""
    from ...runtime.session import Session
    from ...runtime.tasks import find_task

    if args.json and args.output == "-":
        raise NystraError("--json and -o - both want the standard output: give one")
    _check_threads(args.threads)
    begin = time.perf_counter()
    session = Session(args.model, args.backend, args.threads, args.library)
    if not args.quiet:
        _say_how_it_runs(session, verbose=args.verbose)
    run_task = find_task(session).load()
    results = run_task(
        session,
        args.input,
        args.output,
        _options(args),
        video=video_options(args),
        report=_reporter(quiet=args.quiet, verbose=args.verbose),
    )
    if args.json:
        print_json({"library_reason": session.library_reason, "pictures": results})
    elif not args.quiet and args.output != "-":
        if not args.verbose:
            _print_pictures(results)
        if args.input.is_dir() and not any("frames" in result for result in results):
            say(_summary(results, time.perf_counter() - begin))
    for result in results:
        for text in result["warnings"]:
            warn(f"{result['input']}: {text}")
    failed = [result for result in results if result["status"] == "failed"]
    for result in failed:
        warn(f"{result['input']} failed: {result['error']}")
    return 2 if failed else 0


def _options(args: argparse.Namespace) -> RunOptions:
    from ...runtime.restoring.options import RunOptions

    memory = None if args.max_memory is None else _bytes(args.max_memory)
    names = {field.name for field in fields(RunOptions)} - {"max_memory"}
    return RunOptions(max_memory=memory, **{name: getattr(args, name) for name in names})


def _bytes(text: str) -> int:
    """Return the bytes of a size such as ``4G``, ``500M`` or ``1.5GiB``."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([kmgt]?)(?:i?b)?", text.strip().lower())
    if match is None:
        raise NystraError(f"--max-memory is {text!r}, expected a size such as 4G or 500M")
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2] or " "))


def _check_threads(threads: int | None) -> None:
    cores = os.cpu_count() or 1
    if threads is not None and threads > cores:
        warn(f"--threads {threads} on {cores} cores: threads that wait for each other are slow")


def _say_how_it_runs(session: Session, *, verbose: bool) -> None:
    from ...runtime.backends._library import NOT_BUILT

    if session.library_reason.startswith(NOT_BUILT):
        say(
            "note: built without the operator library; linear attention runs on standard "
            "operators, often slower. `nystra inspect` explains.",
            file=sys.stderr,
        )
    if verbose:
        say(session.library_reason, file=sys.stderr)


def _reporter(*, quiet: bool, verbose: bool) -> Callable[[dict[str, Any], int, int], None] | None:
    """Return what says on stderr how far it is: a line a picture, or one every so many."""
    from ...runtime.progress import wants_bar

    if quiet or (wants_bar() and not verbose):
        return None
    counts: Counter[str] = Counter()
    begin = last = time.perf_counter()

    def report(result: dict[str, Any], done: int, total: int) -> None:
        nonlocal last
        counts[result["status"]] += 1
        if verbose:
            say(f"{done} of {total}: {_line(result)}", file=sys.stderr, flush=True)
            return
        now = time.perf_counter()
        if done < total and (done % max(10, total // 20) == 0 or now - last > _LONG):
            failed = f", {counts['failed']} failed" if counts["failed"] else ""
            things = "frames" if "frames" in result else "pictures"
            left = _duration((now - begin) / done * (total - done))
            say(f"{done} of {total} {things}{failed}, {left} left", file=sys.stderr, flush=True)
            last = now

    return report


def _duration(seconds: float) -> str:
    """Return a time in words, to two figures or so: ``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _line(result: dict[str, Any]) -> str:
    if result["status"] == "failed":
        return f"{result['input']} failed: {result['error']}"
    width, height = result["output_size"]
    return (
        f"{result['input']} -> {result['output']}, {width}x{height}, {result['tiles']} tiles, "
        f"{result['seconds']:.2f} s (model {result['model_seconds']:.2f} s)"
    )


def _print_pictures(results: list[dict[str, Any]]) -> None:
    video = any("frames" in result for result in results)
    rows = [("input", "output", "size", "seconds", "frames" if video else "tiles")]
    for result in results:
        if result["status"] == "done":
            width, height = result["output_size"]
            seconds, count = f"{result['seconds']:.2f}", str(result["tiles"])
            if video:
                count = f"{result['frames']}, {result['kept']} kept"
            rows.append((result["input"], result["output"], f"{width}x{height}", seconds, count))
    if len(rows) > 1:
        print_table(rows)


def _summary(results: list[dict[str, Any]], seconds: float) -> str:
    """Return one line: how many pictures were done, failed and skipped, and why skipped."""
    counts = Counter(result["status"] for result in results)
    strange = [result["input"] for result in results if result["reason"] == "no picture"]
    there = counts["skipped"] - len(strange)
    reasons = [f"{there} with an output"] if there else []
    if strange:
        names = ", ".join(Path(path).name for path in strange[:3])
        reasons.append(f"{len(strange)} no pictures: {names}{', ...' if strange[3:] else ''}")
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return (
        f"{counts['done']} done, {counts['failed']} failed, {counts['skipped']} skipped{why} in "
        f"{seconds:.1f} s"
    )
