"""Variants of ``nystra run`` on a folder of images, timed one after the other in rounds."""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from nystra.runtime import ImageData, read_image, write_image

PHOTOGRAPH = Path(__file__).parents[2] / "export" / "photographs" / "chelsea.png"


def arguments(description: str, side: int) -> argparse.ArgumentParser:
    """Return a parser of the arguments that such benchmarks share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("model", type=Path)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--side", type=int, default=side)
    parser.add_argument("--rounds", type=int, default=3)
    return parser


def ratios(
    ways: Mapping[str, tuple[Sequence[str], Sequence[str]]], args: argparse.Namespace
) -> dict[str, float]:
    """Time each variant once per round on the same images; print the seconds of each round.

    Args:
        ways: The program before the word ``run``, and flags behind the folders, by name.
        args: Of `arguments`.

    Returns:
        How many times as long as the first way each of them takes: the median of the rounds.
    """
    measured: dict[str, list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as place:
        source, target = Path(place, "in"), Path(place, "out")
        _cut(source, args.images, args.side)
        for _ in range(args.rounds):
            took = {}
            for way, (program, flags) in ways.items():
                shutil.rmtree(target, ignore_errors=True)
                command = [*program, "run", str(args.model), "-i", str(source), "-o", str(target)]
                begin = time.perf_counter()
                subprocess.run([*command, "-q", *flags], check=True)
                took[way] = time.perf_counter() - begin
            first = next(iter(took.values()))
            for way, seconds in took.items():
                measured[way].append(seconds / first)
            print({way: round(seconds, 1) for way, seconds in took.items()}, flush=True)
    return {way: statistics.median(values) for way, values in measured.items()}


def _cut(folder: Path, count: int, side: int) -> None:
    """Write different parts of a photograph, mirrored as far as they need."""
    pixels = read_image(PHOTOGRAPH).pixels
    short = [max(0, side + 64 - length) for length in pixels.shape[:2]]
    pixels = np.pad(pixels, [*((0, more) for more in short), (0, 0)], "symmetric")
    random = np.random.default_rng(0)
    folder.mkdir()
    for number in range(count):
        top, left = (int(random.integers(0, length - side + 1)) for length in pixels.shape[:2])
        part = np.ascontiguousarray(pixels[top : top + side, left : left + side])
        write_image(folder / f"{number:04d}.png", ImageData(part))
