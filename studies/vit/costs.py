"""Vision transformers with each attention: parameters, operations, time and memory by token count.

To run it::

    python -m studies.vit.costs count     # parameters and GFLOPs
    python -m studies.vit.costs time      # one thread, interleaved runs, each engine
    python -m studies.vit.costs memory    # each run in a process of its own
    python -m studies.vit.costs plot vit_tokens.png    # of what `time` measured

Weights are random, so accuracy is not measured (see ``studies.vit.study``). Files and
figures are kept in ``--folder``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nystra.models.vit.network import ViT
from nystra.runtime.session_spec import SessionSpec
from nystra.runtime.timing.bench import WORKER
from nystra.runtime.timing.turns import median_ratio, time_interleaved
from nystra.runtime.workers.child import Child
from studies.performance.peak import peak_above
from studies.vit.networks import (
    BACKENDS,
    CIFAR,
    ENGINES,
    LARGE,
    SHAPES,
    TRAINED,
    attention_share,
    call,
    file,
    names,
    operations,
)

Figures = dict[str, dict[str, dict[str, float]]]
"""Engine -> side of the image -> attention -> a figure."""


def count() -> None:
    """Print parameters and GFLOPs of every trained attention."""
    print("| network | attention | parameters | GFLOPs | of these attention |")
    print("| --- | --- | ---: | ---: | ---: |")
    for title, shape in (("32 pixels, patch 4", CIFAR), ("160 pixels, patch 8", LARGE)):
        for name, more in TRAINED.items():
            network = ViT(**shape | more).eval()
            whole = operations(network, shape["image_size"])
            parameters = sum(value.numel() for value in network.parameters())
            share = attention_share(network, shape["image_size"])
            figures = f"{parameters:,} | {whole / 1e9:.4f} | {share:.0%}"
            print(f"| {title} | {name} | {figures} |", flush=True)


def time(engine: str, shape: str, seconds: float, folder: Path) -> dict[str, float]:
    """Return the milliseconds of an image with each attention."""
    calls = {name: call(engine, name, shape, folder) for name in names()}
    times = time_interleaved(calls, seconds, maximum=1000)
    print(f"{engine}, {shape} pixels: {len(times['full'])} rounds", file=sys.stderr, flush=True)
    exact = statistics.median(times["full"])
    return {
        name: 1e3 * (exact if name == "full" else exact / median_ratio(times["full"], times[name]))
        for name in calls
    }


def memory(engine: str, shape: str, folder: Path) -> dict[str, float]:
    """Return the memory in MiB of the first run with each attention, above that before it."""
    if engine == "PyTorch":
        return {name: _of_torch(shape, name) for name in names()}
    return {name: _of_file(engine, file(name, shape, folder), int(shape)) for name in names()}


def _of_file(engine: str, path: Path, side: int) -> float:
    with Child(WORKER) as child:
        spec = SessionSpec(path, BACKENDS[engine], threads=1)
        child.ask("load", {"session": spec.as_dict()})
        child.ask("prepare", {"size": {"height": side, "width": side}})
        child.ask("run")
        return float(child.ask("memory")["above"]) / 2**20


def _of_torch(shape: str, name: str) -> float:
    words = ["peak", "--sides", shape, "--name", name]
    ended = subprocess.run(
        [sys.executable, "-m", "studies.vit.costs", *words],
        check=True,
        capture_output=True,
        text=True,
    )
    return float(ended.stdout)


def peak(shape: str, name: str) -> float:
    """Return the memory in MiB of the first run in PyTorch, above that of a built network."""
    return peak_above(call("PyTorch", name, shape, Path())) / 2**20


def tokens(shape: str) -> int:
    """Return the number of patches of an image."""
    patch: int = SHAPES[shape]["patch_size"]
    return (int(shape) // patch) ** 2


def table(figures: Mapping[str, Mapping[str, float]], ratios: bool) -> None:
    """Print one engine, one row per attention; ratios are exact attention's time over its time."""
    print("| attention | " + " | ".join(f"{tokens(shape):,}" for shape in figures) + " |")
    print("| --- |" + " ---: |" * len(figures))
    for name in names():
        cells = [
            f"{of['full'] / of[name]:.2f}"
            if ratios and name != "full"
            else (f"{of[name]:.1f} ms" if ratios else f"{of[name]:.1f}")
            for of in figures.values()
        ]
        print(f"| {name} | {' | '.join(cells)} |")


def plot(figures: Figures, path: Path) -> None:
    """Draw milliseconds over tokens of the small network, one panel per engine."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes: Any = None
    for place, (engine, sides) in enumerate(figures.items()):
        axes = figure.add_subplot(1, len(figures), place + 1, sharey=axes)
        shapes = sorted((shape for shape in sides if SHAPES[shape] is not LARGE), key=int)
        for name in names():
            style = "--" if name.endswith("swapped") else "-"
            times = [sides[shape][name] for shape in shapes]
            axes.plot([tokens(shape) for shape in shapes], times, style, marker=".", label=name)
        axes.set(xscale="log", yscale="log", xlabel="tokens", title=engine)
        axes.grid(visible=True, which="both", alpha=0.25)
    figure.axes[0].set_ylabel("ms an image, one thread")
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8
    )
    figure.savefig(path, dpi=110)


def main() -> None:
    """Parse the command line; measure, print and store."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("count", "time", "memory", "plot", "peak"))
    parser.add_argument("out", type=Path, nargs="?", help="plot: the image to write")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each size and engine (15)")
    parser.add_argument("--sides", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--folder", type=Path, default=Path("build/vit"))
    parser.add_argument("--name", choices=names(), help="peak: the attention")
    args = parser.parse_args()
    kept = args.folder / ("time.json" if args.what == "plot" else f"{args.what}.json")
    if args.what == "count":
        count()
    elif args.what == "peak":
        print(peak(args.sides[0], args.name))
    elif args.what == "plot":
        plot(json.loads(kept.read_text()), args.out)
    else:
        figures: Figures = {}
        kept.parent.mkdir(parents=True, exist_ok=True)
        for engine in args.engines:
            for shape in args.sides:
                figure = (
                    time(engine, shape, args.seconds, args.folder)
                    if args.what == "time"
                    else memory(engine, shape, args.folder)
                )
                figures.setdefault(engine, {})[shape] = figure
                kept.write_text(json.dumps(figures, indent=1) + "\n")
        for engine, sides in figures.items():
            print(f"\n{engine}\n")
            table(sides, ratios=args.what == "time")


if __name__ == "__main__":
    main()
