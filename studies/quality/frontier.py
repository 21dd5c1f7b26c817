"""Measure loss and time of settings of ``cluster`` for each window size, and plot both.

A row is a setting at all sites of one window size, the others staying exact: the change of PSNR on
images with ground truth, and the processor time of the operator on one thread, on a map that all
window sizes divide. Networks without a position bias run at other windows than the trained one if
``WINDOW`` differs; their loss is against exact attention there. Rows in the JSON file are not
measured again; every window size gets a chart of its own, with a panel for each network, in which a
star marks the setting that `cluster` has by default::

    python -m studies.quality.frontier --set Set5/LR_bicubic/X2 Set5/HR --rows rows.json \\
        --out charts swinir_x2_w16:16 swinir_x2_w32_nobias:24 swinir_x2_w32_nobias:32 sst_x2_w64:64
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from nystra.core.json_text import stable_json
from nystra.export.attention.cluster.parameters import Cluster
from nystra.export.attention.full.parameters import Full
from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.plan import Plan
from nystra.export.attention.site import find_sites, resolve, swap
from nystra.models import LoadedModel, load
from nystra.models.geometry import WindowGeometry
from nystra.models.sites import WindowSite
from studies.quality.measure import ImageSet, measure
from studies.quality.tables import label

SETTINGS = tuple(
    Cluster((side, side), block, rounds)
    for rounds in (0, 1)
    for block in (4, 8)
    for side in (2, 4, 6, 8)
)
"""What is compared: 4 to 64 clusters, both blocks, one round and two."""

SIDE = 192
"""Of the map that is timed: a multiple of windows of 8 to 96."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """A network at one of its windows.

    Attributes:
        name: Of the checkpoint.
        window: Side of the windows that are changed.
        model: The network.
    """

    name: str
    window: int
    model: LoadedModel

    @staticmethod
    def of(name: str, side: int) -> Subject:
        """Return a network at a window; a network of a single window size is run at that window."""
        model = load(name)
        if "window_size" in model.hyper:
            model = load(name, window_size=side)
        return Subject(Path(name).stem, side, model)

    def sites(self) -> dict[str, WindowSite]:
        """Return the sites of the window size by path."""
        return {
            site.path: site.module
            for site in find_sites(self.model.network)
            if isinstance(site.module, WindowSite)
            and site.module.geometry.window == (self.window, self.window)
        }

    def with_mechanism(self, mechanism: Mechanism) -> nn.Module:
        """Return the network with the mechanism at these sites and exact attention elsewhere."""
        network, own = self.model.network, self.sites()
        everywhere = resolve(Plan(default=mechanism), network)
        exact = resolve(Plan(default=Full()), network)
        chosen = {path: (everywhere if path in own else exact)[path] for path in exact}
        return swap(network, chosen, "operator")


def frontier(subject: Subject, images: ImageSet, rounds: int) -> list[Row]:
    """Return a row for exact attention and for each setting."""
    exact = measure(subject.model, subject.with_mechanism(Full()), images)
    times = times_of(subject, (Full(), *SETTINGS), rounds)
    rows = []
    for mechanism in (Full(), *SETTINGS):
        found = exact
        if isinstance(mechanism, Cluster):
            found = measure(subject.model, subject.with_mechanism(mechanism), images)
        row: Row = {
            "model": subject.name,
            "window": subject.window,
            "plan": label(mechanism),
            "psnr": found.quality.psnr,
            "loss": exact.quality.psnr - found.quality.psnr,
            "ms": min(times[mechanism]),
        }
        if isinstance(mechanism, Cluster):
            against = statistics.mean(found.against(exact))
            clusters, block = mechanism.sizes()
            row |= {"clusters": math.prod(clusters), "block": block}
            row |= {"rounds": mechanism.rounds, "against_full": against}
        rows.append(row)
        print(row, file=sys.stderr, flush=True)
    return rows


def times_of(
    subject: Subject, mechanisms: Sequence[Mechanism], rounds: int
) -> Mapping[Mechanism, list[float]]:
    """Return the milliseconds of one site with each mechanism, in turns."""
    path, site = next(iter(subject.sites().items()))
    modules: dict[Mechanism, Any] = {
        mechanism: subject.with_mechanism(mechanism).get_submodule(path) for mechanism in mechanisms
    }
    geometry: WindowGeometry = site.geometry
    channels = geometry.heads * (2 * geometry.head_dim + geometry.value_dim)
    qkv = torch.randn(1, SIDE, SIDE, channels, generator=torch.Generator().manual_seed(0))
    times: dict[Mechanism, list[float]] = {mechanism: [] for mechanism in mechanisms}
    with torch.inference_mode():
        for _ in range(rounds):
            for mechanism, module in modules.items():
                times[mechanism].append(_once(module, qkv))
    return times


def _once(module: WindowSite, qkv: Tensor) -> float:
    start = time.thread_time()
    module.attend(qkv)
    return 1e3 * (time.thread_time() - start)


def draw(rows: Sequence[Row], out: Path) -> None:
    """Write the chart of one window size: drop over time, one panel per network."""
    names = list(dict.fromkeys(row["model"] for row in rows))
    figure = Figure(figsize=(5.2 * len(names), 4), layout="constrained")
    for number, name in enumerate(names):
        _panel(
            figure.add_subplot(1, len(names), number + 1),
            [row for row in rows if row["model"] == name],
        )
    figure.axes[0].legend(fontsize="small")
    figure.savefig(out, dpi=110)


def _panel(axes: Axes, rows: Sequence[Row]) -> None:
    for block, rounds in ((4, 0), (4, 1), (8, 0), (8, 1)):
        line = [row for row in rows if row.get("block") == block and row["rounds"] == rounds]
        axes.plot(
            [row["ms"] for row in line],
            [row["loss"] for row in line],
            color="C0" if block == 4 else "C1",
            label=f"block {block}" + (", a second round" if rounds else ""),
            linestyle="--" if rounds else "-",
            marker="o",
            markersize=4,
        )
        for row in line:
            place = row["ms"], row["loss"]
            axes.annotate(
                str(row["clusters"]), place, fontsize=7, xytext=(3, 3), textcoords="offset points"
            )
    exact = next(row for row in rows if "block" not in row)
    usual = next(row for row in rows if _is_default(row))
    axes.plot([usual["ms"]], [usual["loss"]], "*", color="C3", markersize=14, label="default")
    axes.axhline(0, color="0.6", linewidth=0.8)
    axes.set(
        title=f"{exact['model']}, window {exact['window']} (exact: {exact['ms']:.0f} ms)",
        xlabel=f"ms of one site, {SIDE}x{SIDE}, one thread",
        ylabel="dB lost",
    )
    axes.title.set_fontsize(9)
    axes.grid(visible=True, alpha=0.3)


def _is_default(row: Row) -> bool:
    usual = Cluster()
    clusters, block = usual.sizes(row["window"] ** 2)
    wanted = {"clusters": math.prod(clusters), "block": block, "rounds": usual.rounds}
    return wanted.items() <= row.items()


def main() -> None:
    """Measure what is missing, store the rows as JSON and draw them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("subjects", nargs="*", metavar="NAME:WINDOW")
    parser.add_argument("--set", nargs=2, metavar=("INPUTS", "TRUTHS"), type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5, help="turns of the times (%(default)s)")
    parser.add_argument("--rows", type=Path, required=True, help="JSON file of the rows")
    parser.add_argument("--out", type=Path, required=True, help="folder of the charts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = json.loads(options.rows.read_bytes()) if options.rows.exists() else []
    for text in options.subjects:
        name, _, window = text.rpartition(":")
        if (Path(name).stem, int(window)) not in {(row["model"], row["window"]) for row in rows}:
            rows += frontier(
                Subject.of(name, int(window)), ImageSet("", *options.set), options.rounds
            )
            options.rows.write_bytes(stable_json(rows))
    options.out.mkdir(parents=True, exist_ok=True)
    for window in sorted({row["window"] for row in rows}):
        own = [row for row in rows if row["window"] == window]
        draw(own, options.out / f"cluster_frontier_w{window}.png")


if __name__ == "__main__":
    main()
