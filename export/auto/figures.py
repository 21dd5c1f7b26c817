"""The two figures of a choice: time against PSNR, and each candidate at each site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.metrics.measures import decibels
from .knapsack import change, fastest, seconds
from .result import AutoResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CEILING = 90.0
"""Position in dB of candidates without any change."""
_LINE = 0.035
"""Height of a line of small text relative to that of the axes."""


def pareto_figure(result: AutoResult) -> Figure:
    """Draw time against PSNR: uniform plans, tried plans, the choice, and the estimate."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.add_subplot()
    trained = 1e3 * seconds(result.trained)
    axes.axvline(trained, color="0.6", linestyle=":", label="as trained: no loss")
    axes.axhline(result.budget, color="tab:red", linewidth=1, label=f"{result.budget:g} dB wanted")
    estimate = [fastest(result.options, 10 ** (-db / 10)) for db in np.arange(34.0, 76.0, 0.5)]
    curve = [
        (1e3 * seconds(choice), decibels(change(choice)))
        for choice in estimate
        if change(choice) > 0
    ]
    if curve:
        axes.plot(*zip(*curve, strict=True), color="tab:blue", alpha=0.4, label="sum of the sites")
    others = [entry for entry in result.tried if entry[1].worst > 0]
    axes.plot(
        [1e3 * seconds(choice) for choice, _ in others],
        [verified.psnr for _, verified in others],
        ".",
        color="0.6",
        label="verified during the search",
    )
    uniform = {
        name: (1e3 * seconds(choice), min(verified.psnr, _CEILING))
        for name, (choice, verified) in result.uniform.items()
    }
    if uniform:
        places = zip(*uniform.values(), strict=True)
        axes.plot(*places, "o", color="tab:orange", markersize=5, label="one candidate everywhere")
    if not result.changes_nothing:
        place = (1e3 * seconds(result.choice), result.verified.psnr)
        axes.plot(*place, "*", color="tab:green", markersize=15, label="chosen")
    axes.set(
        xlabel=f"time of attention alone at {result.timed}, ms",
        ylabel="PSNR against the network as trained, dB: worse of both sets",
    )
    axes.set_xlim(left=0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")
    _label_points(axes, uniform)
    return figure


def _label_points(axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Write the names of points in a column right of the axes, a thin line from each."""
    if not points:
        return
    names = sorted(points, key=lambda name: points[name][1])
    low, high = axes.get_ylim()
    heights = spread([(points[name][1] - low) / (high - low) for name in names], _LINE)
    for name, height in zip(names, heights, strict=True):
        axes.annotate(
            name,
            points[name],
            (1.02, height),
            textcoords="axes fraction",
            verticalalignment="center",
            fontsize=6,
            arrowprops={"arrowstyle": "-", "color": "0.75", "linewidth": 0.5},
        )


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Return ascending heights ``gap`` apart and none above 1; more than fit continue below 0.

    Each moves up to keep the gap to the one below it, then down to keep the top.
    """
    moved: list[float] = []
    for height in heights:
        moved.append(max(height, moved[-1] + gap) if moved else height)
    for place in range(len(moved) - 1, -1, -1):
        limit = 1.0 if place == len(moved) - 1 else moved[place + 1] - gap
        moved[place] = min(moved[place], limit)
    return moved


def sites_figure(result: AutoResult) -> Figure:
    """Draw sites and candidates: PSNR with that site alone replaced, the choice framed."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    names = list(dict.fromkeys(option.name for row in result.options.values() for option in row))
    paths = list(result.options)
    values = np.full((len(paths), len(names)), np.nan)
    for place, path in enumerate(paths):
        for option in result.options[path]:
            values[place, names.index(option.name)] = min(decibels(option.change), _CEILING)
    figure = Figure(
        figsize=(2.5 + 0.62 * len(names), 2.2 + 0.24 * len(paths)), layout="constrained"
    )
    axes = figure.add_subplot()
    shown: Any = axes.imshow(values, cmap="RdYlGn", vmin=35, vmax=75, aspect="auto")
    for row, path in enumerate(paths):
        for column, name in enumerate(names):
            if np.isfinite(values[row, column]):
                same = values[row, column] == _CEILING
                text = "same" if same else f"{values[row, column]:.0f}"
                axes.text(column, row, text, ha="center", va="center", fontsize=7)
            if result.choice[path].name == name:
                corner = (column - 0.47, row - 0.45)
                axes.add_patch(Rectangle(corner, 0.94, 0.9, fill=False, linewidth=2))
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=7)
    axes.set_yticks(range(len(paths)), [_short(path) for path in paths], fontsize=7)
    figure.colorbar(shown, ax=axes, label="dB, that site alone replaced")
    return figure


def _short(path: str) -> str:
    """Return a path without the parts that all networks of the kind share."""
    words = [part for part in path.split(".") if part not in ("residual_group", "attn")]
    return ".".join(words) or path
