"""Plot loss over speedup of ``cluster`` with both orders in large windows, against exact attention.

A row is a setting at all windows of one size, the others staying exact, as `frontier` measures
them; networks without a position bias run at other windows than the trained one::

    python -m studies.quality.orders --set Set5/LR_bicubic/X2 Set5/HR \\
        swinir_x2_w32_nobias:32 swinir_x2_w32_nobias:64 sst_x2_w64:64

Rows of ``orders.json`` are not measured again. The speedup is that of the attention of a site, of
the medians of turns on one thread. The last panel has the attention over a whole map that
`studies.tokens` measures.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nystra.core.json_text import stable_json
from nystra.export.attention.cluster.parameters import Cluster
from nystra.export.attention.full.parameters import Full
from studies.quality.frontier import Row, Subject, times_of
from studies.quality.measure import ImageSet, measure
from studies.tokens.costs import KINDS

SETTINGS = (
    *(Cluster((side, side), 8, order=0) for side in (2, 4, 6, 8)),
    *(Cluster((side, side), 8, order=1) for side in (2, 3, 4)),
)
_LEAST_RANGE = 0.02
"""dB that a panel shows at least, so that noise is not read as loss."""

ROWS = Path(__file__).with_suffix(".json")
TOKENS = Path(__file__).parent.parent / "tokens"
MAP_SIDE, MAP_TOKENS = 128, 4096
PICTURE = Path(__file__).parent.parent / "measurements" / "images" / "large_windows.png"


def rows_of(subject: Subject, images: ImageSet, rounds: int) -> list[Row]:
    """Return a row for each setting."""
    exact = measure(subject.model, subject.with_mechanism(Full()), images)
    times = times_of(subject, (Full(), *SETTINGS), rounds)
    rows: list[Row] = []
    for setting in SETTINGS:
        found = measure(subject.model, subject.with_mechanism(setting), images)
        ratios = [whole / short for whole, short in zip(times[Full()], times[setting], strict=True)]
        row = {
            "model": subject.name,
            "window": subject.window,
            "clusters": math.prod(setting.sizes()[0]),
            "order": setting.order,
            "psnr": exact.quality.psnr,
            "loss": exact.quality.psnr - found.quality.psnr,
            "against": statistics.mean(found.against(exact)),
            "speedup": statistics.median(ratios),
        }
        rows.append(row)
        print(row, file=sys.stderr, flush=True)
    return rows


def map_rows() -> list[Row]:
    """Return the rows of attention over a whole map, from the files of `studies.tokens`."""
    costs = json.loads((TOKENS / "costs.json").read_bytes())
    quality = json.loads((TOKENS / "quality.json").read_bytes())
    seconds = {row["kind"]: row["ms"] for row in costs if row["tokens"] == MAP_TOKENS}
    psnr = {row["kind"]: row["psnr"] for row in quality if row["side"] == MAP_SIDE}
    rows = []
    for kind, (name, settings) in KINDS.items():
        if name != Cluster.name:
            continue
        setting = Cluster(**settings).at(None)
        row = {
            "model": f"restorer, map of {MAP_TOKENS:,} tokens",
            "window": None,
            "clusters": math.prod(setting.sizes()[0]),
            "order": setting.order,
            "loss": psnr["full"] - psnr[kind],
            "speedup": seconds["full"] / seconds[kind],
        }
        rows.append(row)
    return sorted(rows, key=lambda row: row["clusters"])


def draw(rows: Sequence[Row], out: Path) -> None:
    """Write the chart: dB lost over the speedup, a panel for each network and window."""
    subjects = list(dict.fromkeys((row["model"], row["window"]) for row in rows))
    figure = Figure(figsize=(3.4 * len(subjects), 2.9), layout="constrained")
    panels = figure.subplots(1, len(subjects), squeeze=False)[0]
    for axes, subject in zip(panels, subjects, strict=True):
        _panel(axes, [row for row in rows if (row["model"], row["window"]) == subject])
    panels[0].set_ylabel("dB lost")
    panels[0].legend(fontsize="small")
    figure.savefig(out, dpi=90)


def _panel(axes: Axes, rows: Sequence[Row]) -> None:
    for order in (0, 1):
        line = [row for row in rows if row["order"] == order]
        speedups = [row["speedup"] for row in line]
        drops = [row["loss"] for row in line]
        axes.plot(speedups, drops, f"C{order}o-", markersize=4, label=f"order {order}")
        for row in line:
            place = row["speedup"], row["loss"]
            axes.annotate(
                str(row["clusters"]), place, fontsize=7, xytext=(3, 3), textcoords="offset points"
            )
    axes.axhline(0, color="0.6", linewidth=0.8)
    model, side = rows[0]["model"], rows[0]["window"]
    axes.set_title(f"{model}, windows of {side}" if side else model, fontsize=9)
    axes.set_xlabel("times as fast as exact attention")
    axes.plot([1], [0], "ks", markersize=5, label="exact")
    axes.set_xlim(0, 1.08 * max(row["speedup"] for row in rows))
    losses = [row["loss"] for row in rows]
    least, most = min(0.0, *losses), max(_LEAST_RANGE, *losses)
    margin = 0.06 * (most - least)
    axes.set_ylim(least - margin, most + margin)
    axes.grid(visible=True, alpha=0.3)


def main() -> None:
    """Measure what is missing, store the rows as JSON and draw them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("subjects", nargs="*", metavar="NAME:WINDOW")
    parser.add_argument("--set", nargs=2, metavar=("INPUTS", "TRUTHS"), type=Path)
    parser.add_argument("--rounds", type=int, default=5, help="turns of the times (%(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Row] = json.loads(ROWS.read_bytes()) if ROWS.exists() else []
    for text in options.subjects:
        name, _, window = text.rpartition(":")
        if (name, int(window)) not in {(row["model"], row["window"]) for row in rows}:
            subject = Subject.of(name, int(window))
            rows += rows_of(subject, ImageSet("Set5", *options.set), options.rounds)
            ROWS.write_bytes(stable_json(rows))
    draw([*rows, *map_rows()], PICTURE)


if __name__ == "__main__":
    main()
