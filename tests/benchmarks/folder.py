# ruff: noqa: T201
"""What ``nystra run`` takes for a folder: step by step, with files beside the model, in processes.

    python tests/benchmarks/folder.py model.onnx --pictures 200 --side 48 --rounds 3

Each round runs the ways one after the other on the same pictures, as programs of their own; the
median of the ratios counts. The bar: 200 small pictures 1.5 times as fast as step by step.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from spreading import cut

STEPS = """
import sys
from nystra.export.cli import main
from nystra.runtime.restoring import job, line

def steps(job, pairs, move):
    written = set()
    for index, pair in enumerate(pairs):
        yield index, line.attempt(job, pair, written)

job.one_by_one = steps
sys.exit(main(sys.argv[1:]))
"""
PROGRAM = ["-m", "nystra.export.cli"]
WAYS = {
    "step by step": (["-c", STEPS], []),
    "files beside the model": (PROGRAM, []),
    "--jobs 2": (PROGRAM, ["--jobs", "2"]),
}


def seconds(program: list[str], model: Path, folder: Path, flags: list[str]) -> float:
    """Return what one run takes, from the start of the program to its end."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    given = ["run", str(model), "-i", str(folder / "in"), "-o", str(folder / "out"), "-q", *flags]
    begin = time.perf_counter()
    subprocess.run([sys.executable, *program, *given], check=True)
    return time.perf_counter() - begin


def main() -> None:
    """Print a line a round, and how many times as fast as step by step each way is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--pictures", type=int, default=200)
    parser.add_argument("--side", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    gains: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        cut(folder / "in", args.pictures, args.side)
        for _ in range(args.rounds):
            took = {
                way: seconds(program, args.model, folder, flags)
                for way, (program, flags) in WAYS.items()
            }
            for way in WAYS:
                gains[way].append(took["step by step"] / took[way])
            print({way: round(value, 1) for way, value in took.items()}, flush=True)
    print({way: round(statistics.median(values), 2) for way, values in gains.items()})


if __name__ == "__main__":
    main()
