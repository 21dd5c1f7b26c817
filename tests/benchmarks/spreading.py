# ruff: noqa: T201
"""What ``nystra run --ray local`` adds to ``nystra run``, and what a second worker brings.

    python tests/benchmarks/spreading.py model.onnx --pictures 200 --side 128 --rounds 3

Each round runs the commands one after the other on the same pictures, one thread a worker; of the
rounds the median ratio counts. The bar: one worker takes at most 1.15 times as long as no Ray.
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

import numpy as np

from nystra.runtime import Picture, read_picture, write_picture

PHOTOGRAPH = Path(__file__).parents[2] / "export" / "photographs" / "chelsea.png"
WAYS = {
    "without Ray": [],
    "1 worker": ["--ray", "local", "--workers", "1"],
    "2 workers": ["--ray", "local", "--workers", "2"],
}


def cut(folder: Path, count: int, side: int) -> None:
    """Write parts of a photograph, each another one."""
    pixels = read_picture(PHOTOGRAPH).pixels
    random = np.random.default_rng(0)
    folder.mkdir()
    for number in range(count):
        top, left = (int(random.integers(0, length - side)) for length in pixels.shape[:2])
        part = np.ascontiguousarray(pixels[top : top + side, left : left + side])
        write_picture(folder / f"{number:04d}.png", Picture(part))


def seconds(model: Path, source: Path, target: Path, flags: list[str]) -> float:
    """Return what one run takes, from the start of the program to its end."""
    shutil.rmtree(target, ignore_errors=True)
    command = [sys.executable, "-m", "nystra.export.cli", "run", str(model), "-i", str(source)]
    begin = time.perf_counter()
    subprocess.run([*command, "-o", str(target), "--threads", "1", "-q", *flags], check=True)
    return time.perf_counter() - begin


def main() -> None:
    """Print a line a round, and the median ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--pictures", type=int, default=200)
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    ratios: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as place:
        cut(Path(place, "in"), args.pictures, args.side)
        for _ in range(args.rounds):
            took = {
                way: seconds(args.model, Path(place, "in"), Path(place, "out"), flags)
                for way, flags in WAYS.items()
            }
            for way in WAYS:
                ratios[way].append(took[way] / took["without Ray"])
            print({way: round(value, 1) for way, value in took.items()}, flush=True)
    print({way: round(statistics.median(values), 3) for way, values in ratios.items()})


if __name__ == "__main__":
    main()
