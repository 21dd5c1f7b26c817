"""Tests and timings on a GPU. Needs Python only; the device needs no network.

    .ci/gpu pack DIR [--sm 90] [--python 3.12]     without a GPU: writes DIR/<bundle>-1of2, ...
    .ci/gpu keep FOLDER...                         on the device: take pieces that were carried
    .ci/gpu run kernels|ort|tensorrt [FOLDER...]   take pieces, run a stage within 560 s
    .ci/gpu merge RESULT.json... -o RESULT.json    results of several machines; a page beside it
    .ci/gpu page RESULT.json -o PAGE.md

The output is $OUT, else ./out/gpu; what stays between calls lies in $NYSTRA_GPU_STORE, else in
/tmp/nystra-gpu.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from . import engines, kernels, pieces
from .page import write_page
from .result import load, merge, save
from .running import STAGE_SECONDS, Settings, Step, run_stage, run_work

STAGES: dict[str, tuple[Step, ...]] = {
    "kernels": kernels.STEPS,
    "ort": engines.ORT_STEPS,
    "tensorrt": engines.TENSORRT_STEPS,
}


def _settings(args: argparse.Namespace) -> Settings:
    out = Path(os.environ.get("OUT") or "out/gpu")
    store = args.store or Path(os.environ.get("NYSTRA_GPU_STORE") or "/tmp/nystra-gpu")
    out.mkdir(parents=True, exist_ok=True)
    store.mkdir(parents=True, exist_ok=True)
    return Settings(store.resolve(), out.resolve(), args.backend, args.library, args.quick)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", type=Path, help="a folder that lasts from call to call")
    parser.add_argument("--backend", help="is run in place of the stage's own: a dry run")
    parser.add_argument("--library", type=Path, help="folder of plugins and host: a dry run")
    parser.add_argument("--quick", action="store_true", help="small work: a dry run")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=".ci/gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="do", required=True)
    pack = commands.add_parser("pack")
    pack.add_argument("folder", type=Path)
    pack.add_argument("--sm", type=int, default=90, help="whose machine code stays (default: 90)")
    pack.add_argument("--kernels", default="80,86,89,90", help="what our kernels are built for")
    pack.add_argument("--python", default="3.12", help="of the device (default: 3.12)")
    pack.add_argument("--bundles", default="kernels,ort,tensorrt")
    keep = commands.add_parser("keep")
    keep.add_argument("folders", type=Path, nargs="+")
    _add_settings(keep)
    run = commands.add_parser("run")
    run.add_argument("stage", choices=sorted(STAGES))
    run.add_argument("folders", type=Path, nargs="*")
    run.add_argument("--steps", help="these alone, with commas")
    run.add_argument("--seconds", type=float, default=STAGE_SECONDS)
    _add_settings(run)
    step = commands.add_parser("step", description="one step, in a process of its own")
    step.add_argument("work")
    step.add_argument("file", type=Path)
    step.add_argument("deadline", type=float)
    _add_settings(step)
    for name in ("merge", "page"):
        command = commands.add_parser(name)
        command.add_argument("results", type=Path, nargs="+")
        command.add_argument("-o", "--output", type=Path, required=True)
    return parser


def _keep(folders: list[Path], settings: Settings) -> bool:
    """Take pieces; print which were taken and which were not."""
    whole = True
    for record in pieces.keep(folders, settings.store):
        whole = whole and "reason" not in record
        state = record.get("reason", "kept")
        print(f"{record['bundle']}-{record['number']}of{record['count']}: {state}", flush=True)
    return whole


def main(arguments: list[str] | None = None) -> int:
    """Run a command; 0: every step succeeded."""
    args = _parser().parse_args(arguments)
    if args.do == "pack":
        from .packing import pack

        own = [int(one) for one in args.kernels.split(",")]
        return pack(args.folder.resolve(), args.sm, args.python, args.bundles.split(","), own)
    if args.do in ("merge", "page"):
        rows = merge(row for file in args.results for row in load(file))
        if args.do == "merge":
            save(args.output, rows)
        write_page(rows, args.output.with_suffix(".md"))
        return 0
    settings = _settings(args)
    if args.do == "step":
        return run_work(args.work, args.file, args.deadline, settings)
    if args.do == "keep":
        return 0 if _keep(args.folders, settings) else 1
    _keep(args.folders, settings)
    steps = STAGES[args.stage]
    if args.steps:
        steps = tuple(step for step in steps if step.name in args.steps.split(","))
    rows = run_stage(args.stage, steps, settings, args.seconds)
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
