"""Plot loss and time of each mechanism on trained networks, at its default settings.

A row is a mechanism at all windows of one size, the others staying exact, as `frontier` measures
settings of ``cluster``::

    python -m studies.quality.mechanisms --set Set5/LR_bicubic/X2 Set5/HR --rows rows.json \\
        --out mechanisms.png swinir_x2_w16:16 swinir_x2_w32_nobias:32 sst_x2_w64:64
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nystra.core.json_text import stable_json
from nystra.export import mechanism
from studies.quality.frontier import SIDE, Row, Subject, times_of
from studies.quality.measure import ImageSet, measure

NAMES = ("full", "cluster", "nystra", "nystromformer")
"""Those that take weights as they are; Linformer and Performer have to be trained."""


def rows_of(subject: Subject, images: ImageSet, rounds: int) -> list[Row]:
    """Return one row per mechanism."""
    found = {
        name: measure(subject.model, subject.with_mechanism(mechanism(name)), images).quality.psnr
        for name in NAMES
    }
    times = times_of(subject, [mechanism(name) for name in found], rounds)
    return [
        {
            "model": subject.name,
            "window": subject.window,
            "mechanism": name,
            "psnr": psnr,
            "loss": found["full"] - psnr,
            "ms": statistics.median(times[mechanism(name)]),
        }
        for name, psnr in found.items()
    ]


def draw(rows: Sequence[Row], out: Path) -> None:
    """Write the chart: drop over time, one panel per network."""
    names = list(dict.fromkeys(row["model"] for row in rows))
    figure = Figure(figsize=(4.2 * len(names), 3.6), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        _panel(axes, [row for row in rows if row["model"] == name])
    figure.axes[0].legend(fontsize="small")
    figure.savefig(out, dpi=110)


def _panel(axes: Axes, rows: Sequence[Row]) -> None:
    for row in rows:
        mark = f"C{NAMES.index(row['mechanism'])}o"
        axes.plot([row["ms"]], [row["loss"]], mark, markersize=9, alpha=0.8, label=row["mechanism"])
    axes.axhline(0, color="0.6", linewidth=0.8)
    axes.set(
        title=f"{rows[0]['model']}, window {rows[0]['window']}",
        xlabel=f"ms of one site, {SIDE}x{SIDE}, one thread",
        ylabel="dB lost",
        xlim=(0, 1.25 * max(row["ms"] for row in rows)),
        ylim=(-0.06, 0.65),
    )
    axes.title.set_fontsize(9)
    axes.grid(visible=True, alpha=0.3)


def main() -> None:
    """Measure what is missing, store the rows as JSON and draw them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("subjects", nargs="*", metavar="NAME:WINDOW")
    parser.add_argument("--set", nargs=2, metavar=("INPUTS", "TRUTHS"), type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=9, help="turns of the times (%(default)s)")
    parser.add_argument("--rows", type=Path, required=True, help="JSON file of the rows")
    parser.add_argument("--out", type=Path, required=True, help="the chart")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = json.loads(options.rows.read_bytes()) if options.rows.exists() else []
    for text in options.subjects:
        name, _, window = text.rpartition(":")
        if (Path(name).stem, int(window)) not in {(row["model"], row["window"]) for row in rows}:
            subject = Subject.of(name, int(window))
            rows += rows_of(subject, ImageSet("", *options.set), options.rounds)
            options.rows.write_bytes(stable_json(rows))
    draw(rows, options.out)


if __name__ == "__main__":
    main()
