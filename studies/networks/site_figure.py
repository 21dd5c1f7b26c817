"""Draw how an attention site is found in a traced graph, and what replaces it.

The image of docs/how.md::

    python -m studies.networks.site_figure docs/images/site.svg
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

_LAYER, _FOUND, _NODE = "#eceff1", "#fff3e0", "#e8eaf6"
_EDGES = {_LAYER: "#90a4ae", _FOUND: "#e08a1e", _NODE: "#3f51b5"}

Box = tuple[str, str]

TRACED: tuple[Box, ...] = (
    ("Linear: q, k, v", _LAYER),
    ("roll, partition into windows", _FOUND),
    ("product q kᵀ", _FOUND),
    ("+ position bias, + shift mask", _FOUND),
    ("softmax", _FOUND),
    ("product with v", _FOUND),
    ("merge the windows, roll back", _FOUND),
    ("Linear: projection", _LAYER),
)
"""The operators of one attention module, in the order of the graph."""

REPLACED: tuple[Box, ...] = (TRACED[0], ("NystraWindowCluster", _NODE), TRACED[-1])
"""The same module in the model file."""


def _column(axes: Axes, left: float, boxes: Sequence[Box], heights: Sequence[float]) -> None:
    """Draw boxes at the given heights, with arrows between them."""
    for (text, color), y in zip(boxes, heights, strict=True):
        axes.add_patch(
            FancyBboxPatch(
                (left, y - 0.3), 3.4, 0.6, "round,pad=0.02", fc=color, ec=_EDGES[color], lw=1.2
            )
        )
        axes.text(left + 1.7, y, text, ha="center", va="center", fontsize=9)
    for upper, lower in pairwise(heights):
        axes.annotate(
            "",
            (left + 1.7, lower + 0.32),
            (left + 1.7, upper - 0.32),
            arrowprops={"arrowstyle": "-|>", "color": "#607d8b"},
        )


def draw() -> Figure:
    """Return the figure: the traced operators, the site, the node and what runs it."""
    figure = Figure((8.4, 4.6), layout="constrained")
    axes = figure.add_subplot()
    axes.set(aspect="auto", xlim=(-0.2, 13.2), ylim=(0.2, 9.6))
    axes.axis("off")
    heights = [8.2 - i for i in range(len(TRACED))]
    middle = (heights[1] + heights[-2]) / 2
    _column(axes, 0, TRACED, heights)
    _column(axes, 5.0, REPLACED, (heights[0], middle, heights[-1]))
    for x, title in ((1.7, "traced graph"), (6.7, "model file"), (11.3, "at run time")):
        axes.text(x, 9.1, title, ha="center", fontsize=11, weight="bold")
    axes.plot((3.65, 3.85, 3.85, 3.65), (7.5, 7.5, 1.9, 1.9), color=_EDGES[_FOUND])
    axes.annotate(
        "",
        (4.95, middle),
        (3.9, middle),
        arrowprops={"arrowstyle": "-|>", "color": _EDGES[_NODE], "lw": 1.6},
    )
    axes.text(4.4, middle + 0.25, "site", ha="center", fontsize=9, color=_EDGES[_FOUND])
    axes.text(
        6.85,
        middle - 0.6,
        "attributes: heads,\nwindow, shift, mask,\nparameters",
        va="top",
        fontsize=8,
        color="#455a64",
    )
    for y, text in (
        (middle + 0.9, "operator library:\none fused kernel"),
        (middle - 0.9, "plain onnxruntime:\nits body of standard operators"),
    ):
        axes.annotate(
            "",
            (9.55, y),
            (8.45, middle),
            arrowprops={"arrowstyle": "-|>", "color": "#607d8b"},
        )
        axes.text(9.7, y, text, va="center", fontsize=9)
    return figure


if __name__ == "__main__":
    mpl.rcParams["svg.hashsalt"] = "nystra"  # the same bytes from every run
    draw().savefig(sys.argv[1], metadata={"Date": None} if sys.argv[1].endswith(".svg") else None)
