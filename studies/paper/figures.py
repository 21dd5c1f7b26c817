"""The paper's figures: singular values, attention maps, time against the token count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.figure import Figure
from torch import Tensor

from nystra.export.attention.mechanism import Mechanism
from nystra.models import LoadedModel
from studies.paper.matrices import EXACT, Pixels, Seen, seen

Curve = npt.NDArray[np.float64]

SHARE = 0.05
"""The token of a map: so many of its head's tokens attend to fewer keys."""


def spectrum_figure(curves: Mapping[str, Curve]) -> Figure:
    """Draw singular values over their index, the largest 1, on a logarithmic axis."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.add_subplot()
    for name, values in curves.items():
        axes.plot(np.arange(1, len(values) + 1), values, marker=".", markersize=4, label=name)
    axes.set(
        yscale="log", xlabel="singular value, from the largest", ylabel="over the largest, mean"
    )
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize="small")
    return figure


def scaling_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw milliseconds over tokens of one window, twice: linear and logarithmic axes.

    Dotted lines through the last points of full attention and of the fastest have the slopes of
    N^2 and N.
    """
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    for place, scale in enumerate(("linear", "log")):
        axes = figure.add_subplot(1, 2, place + 1)
        for plan in dict.fromkeys(row["plan"] for row in rows):
            own = [row for row in rows if row["plan"] == plan]
            tokens, times = [row["tokens"] for row in own], [row["ms"] for row in own]
            axes.plot(tokens, times, marker="o", markersize=4, label=plan)
        axes.set(xscale=scale, yscale=scale, xlabel="tokens N of the window", ylabel="ms")
        axes.grid(visible=True, alpha=0.3)
    figure.axes[0].locator_params(axis="x", nbins=5)
    figure.axes[0].legend(fontsize="small")
    tokens = np.unique([row["tokens"] for row in rows])
    last = [row["ms"] for row in rows if row["tokens"] == tokens[-1]]
    for power, end in ((2, max(last)), (1, min(last))):
        slope = end * (tokens / tokens[-1]) ** power
        figure.axes[1].plot(tokens, slope, ":", color="0.5", zorder=0)
    return figure


@dataclass(frozen=True)
class Query:
    """One token of one window, at one site and head.

    Attributes:
        at: The site on an image.
        head: From 0.
        window: Number of the window, row by row.
        token: Number of the token in it.
    """

    at: Seen
    head: int
    window: int
    token: int

    def map(self, mechanism: Mechanism) -> Tensor:
        """Return the token's weights of its window, (rows, columns)."""
        rows = self.at.matrices(mechanism)[self.head, self.window, self.token]
        return rows.unflatten(0, self.at.site.geometry.window)

    def crop(self, image: Pixels) -> Pixels:
        """Return the window of the image, (h, w, 3); at half resolution it covers more pixels."""
        (rows, columns), factor = self.at.site.geometry.window, self._factor(image)
        across = self.at.qkv.shape[2] // columns
        top = self.window // across * rows * factor
        left = self.window % across * columns * factor
        cut: Pixels = image[0, :, top : top + rows * factor, left : left + columns * factor]
        return np.moveaxis(cut, 0, 2)

    def place(self, image: Pixels) -> tuple[float, float]:
        """Return column and row of the token's center in the crop."""
        columns, factor = self.at.site.geometry.window[1], self._factor(image)
        row, column = divmod(self.token, columns)
        return (column + 0.5) * factor - 0.5, (row + 0.5) * factor - 0.5

    def _factor(self, image: Pixels) -> int:
        return max(1, round(image.shape[3] / self.at.qkv.shape[2]))


def sharp_query(model: LoadedModel, image: Pixels) -> Query:
    """Return a sharp token of the network's sharpest head.

    The head is that of a site with whole windows, not shifted, whose tokens attend to the fewest
    keys (exp of the entropy, median); in it, one in twenty tokens is sharper than the one taken.
    """
    sites = [place for place in seen(model, image) if not place.site.geometry.shifted]
    largest = max(place.site.geometry.tokens for place in sites)
    candidates: list[tuple[float, Seen, int, Tensor]] = []
    with torch.inference_mode():
        for place in (place for place in sites if place.site.geometry.tokens == largest):
            sharpness = torch.special.entr(place.matrices(EXACT)).sum(-1).exp()
            for head, keys in enumerate(sharpness):
                candidates.append((float(keys.median()), place, head, keys))
    _, best, head, keys = min(candidates, key=lambda entry: entry[0])
    order = keys.flatten().argsort()
    window, token = divmod(int(order[int(SHARE * len(order))]), largest)
    return Query(best, head, window, token)


def maps_figure(
    rows: Mapping[str, tuple[LoadedModel, Pixels]], plans: Mapping[str, Mechanism]
) -> Figure:
    """Draw the weights of one token of each network: the window, then one map per plan.

    The maps of a row share their colors; below each its error by Frobenius norm, relative.
    """
    figure = Figure(figsize=(1.75 * (len(plans) + 1), 2.15 * len(rows)), layout="constrained")
    grid: Any = figure.subplots(len(rows), len(plans) + 1, squeeze=False)
    for line, (name, (model, image)) in zip(grid, rows.items(), strict=True):
        query = sharp_query(model, image)
        with torch.inference_mode():
            maps = {plan: query.map(mechanism) for plan, mechanism in plans.items()}
        exact = maps["full"]
        top = float(exact.flatten().quantile(0.995))
        line[0].imshow(query.crop(image), interpolation="nearest")
        line[0].plot(*query.place(image), "+", color="red", markersize=12, markeredgewidth=2)
        line[0].set_title(name, fontsize=8)
        line[0].set_xlabel(f"{query.at.path}\nhead {query.head}", fontsize=6)
        for axes, (plan, weights) in zip(line[1:], maps.items(), strict=True):
            axes.imshow(weights.numpy(), vmin=0.0, vmax=top, cmap="magma", interpolation="nearest")
            axes.set_title(plan, fontsize=8)
            if plan != "full":
                error = float((weights - exact).norm() / exact.norm())
                axes.set_xlabel(f"off by {error:.0%}", fontsize=7)
        for axes in line:
            axes.set(xticks=[], yticks=[])
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
