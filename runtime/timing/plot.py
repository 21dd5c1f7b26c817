"""Plots of times: against the image size, or as bars for a single size."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.files.writing import atomic_path
from ...core.ports.port import size_text
from .rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAR = 0.42
"""Inches for a bar and the gap to the next."""

_ROOM = 1.2
"""Length of the axis relative to the longest bar, which leaves room for its figure."""


def plot_rows(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """Draw the median time of every model and backend.

    Several sizes are plotted against the pixels of the input, with logarithmic axes; a single size
    as bars from 0. The whiskers reach from the median to the 90th percentile. Configurations that
    could not run are named with the reason.

    Args:
        rows: Rows of `bench`.
        path: The output; the suffix chooses the format.

    Raises:
        NystraError: The file cannot be written.
        ModuleNotFoundError: Matplotlib is not installed.
    """
    from matplotlib import rc_context

    one_size = len({size_text(row.size) for row in rows if row.reason is None}) == 1
    # Names of files are no formulas: a text with two $ is drawn as it is.
    with (
        rc_context({"text.parse_math": False, "text.usetex": False}),
        atomic_path(path) as temporary,
    ):
        figure = bars_figure(rows) if one_size else lines_figure(rows)
        figure.savefig(temporary, dpi=150)


def bars_figure(rows: Sequence[Row]) -> Figure:
    """Return a figure with a bar for each row, in their order; all measured rows have one size."""
    from matplotlib.figure import Figure

    labels = _labels(rows)
    figure = Figure(figsize=(8, 1.2 + _BAR * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for place, row in enumerate(rows):
        if row.reason is not None:
            axes.text(0, place, f" {_state(row)}", va="center", color="0.4")
            continue
        middle, above = (1e3 * row.percentile(share) for share in (50, 90))
        axes.barh(place, middle, 0.7, color="tab:blue")
        axes.errorbar(middle, place, xerr=[[0.0], [above - middle]], color="0.2", capsize=3)
        axes.text(above, place, f"  {middle:.4g} ms", va="center")
    axes.set_yticks(range(len(rows)), [labels[row.name] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    longest = max(1e3 * row.percentile(90) for row in rows if row.reason is None)
    axes.set_xlim(0, _ROOM * longest)
    size = next(size_text(row.size) for row in rows if row.reason is None)
    axes.set_xlabel(f"milliseconds per image of {size}: median, 90th percentile")
    axes.grid(visible=True, axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    return figure


def lines_figure(rows: Sequence[Row]) -> Figure:
    """Return a figure with a line for each model and backend over the sizes."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    labels = _labels(rows)
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.add_subplot()
    for name, label in labels.items():
        own = [row for row in rows if row.name == name]
        measured = [row for row in own if row.reason is None]
        if measured:
            _line(axes, sorted(measured, key=lambda row: row.megapixels), label)
        else:
            axes.plot([], [], " ", label=f"{label}: {_state(own[0])}")
    sizes = {size_text(row.size): row.megapixels for row in rows}
    axes.set(xscale="log", yscale="log", xlabel="input", ylabel="seconds per image (median)")
    axes.set_xticks(list(sizes.values()), list(sizes))
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(fontsize="small")
    return figure


def _line(axes: Axes, rows: Sequence[Row], label: str) -> None:
    middle = [row.percentile(50) for row in rows]
    above = [row.percentile(90) - row.percentile(50) for row in rows]
    pixels = [row.megapixels for row in rows]
    axes.errorbar(pixels, middle, [[0.0] * len(rows), above], marker="o", capsize=3, label=label)


def _labels(rows: Sequence[Row]) -> Mapping[str, str]:
    short = {row.name: f"{Path(row.model).name} {row.backend}" for row in rows}
    unique = len(set(short.values())) == len(short)
    return short if unique else {name: name for name in short}


def _state(row: Row) -> str:
    return (row.reason or "").partition(":")[0]
