"""Time against picture size, as a plot."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ...core.files.writing import atomic_path
from .rows import Row


def plot_rows(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """Draw the median time of every model and backend against the input's megapixels.

    The whiskers reach from the median to the 90th percentile; both axes are logarithmic. What
    could not run stands in the legend.

    Args:
        rows: Of `bench`.
        path: Of the picture; the suffix chooses the format.

    Raises:
        NystraError: The file cannot be written.
        ModuleNotFoundError: Matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    names = dict.fromkeys(row.name for row in rows if row.reason is None)
    for name in names:
        own = sorted(
            (row for row in rows if row.name == name and row.reason is None),
            key=lambda row: row.megapixels,
        )
        pixels = [row.megapixels for row in own]
        middle = [row.percentile(50) for row in own]
        above = [row.percentile(90) - row.percentile(50) for row in own]
        axes.errorbar(pixels, middle, [[0.0] * len(own), above], marker="o", capsize=3, label=name)
    for row in {row.name: row for row in rows if row.name not in names}.values():
        state = (row.reason or "").partition(":")[0]
        axes.plot([], [], " ", label=f"{row.name}: {state}")
    axes.set(
        xscale="log", yscale="log", xlabel="input, megapixels", ylabel="seconds a picture (median)"
    )
    axes.grid(True, which="both", alpha=0.3)
    axes.legend(fontsize="small")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)
