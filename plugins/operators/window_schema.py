"""The common attributes of the window operators, and the relations between them."""

from __future__ import annotations

from .relation import Limit, Relation
from .schema import Attribute

LARGEST_SIDE = 1024
"""The largest side of a window, in tokens."""

MAX_LANDMARKS = 64
"""The largest number of landmarks per window, limited by registers and caches of the kernels."""

SIZE_ATTRIBUTES = (
    Attribute("heads", "int", None, 1, 1024, "h, the number of heads"),
    Attribute("head_dim", "int", None, 1, 1024, "d, channels of a head in q and in k"),
    Attribute("value_dim", "int", None, 1, 1024, "e, channels of a head in v"),
    Attribute("window_h", "int", None, 1, LARGEST_SIDE, "rows of a window"),
    Attribute("window_w", "int", None, 1, LARGEST_SIDE, "columns of a window"),
)

WINDOW_ATTRIBUTES = (
    *SIZE_ATTRIBUTES,
    Attribute(
        "shift_h", "int", 0, 0, LARGEST_SIDE - 1, "rows the map is rolled up before the partition"
    ),
    Attribute("shift_w", "int", 0, 0, LARGEST_SIDE - 1, "columns the map is rolled left by"),
    Attribute("mask", "int", 0, 0, 1, "1: tokens of different regions do not see each other"),
)

EXACT_MASK_ATTRIBUTE = Attribute(
    "mask",
    "int",
    0,
    0,
    2,
    "between regions 0: nothing is added; 1: -100, as in Swin; 2: what hides them at any score",
)

EXACT_WINDOW_ATTRIBUTES = (*WINDOW_ATTRIBUTES[:-1], EXACT_MASK_ATTRIBUTE)
"""The same for exact attention."""

SCALE_ATTRIBUTE = Attribute("scale", "float", None, 0.0, 1e6, "factor of q.k, mostly d ** -0.5")

BIAS_ATTRIBUTE = Attribute("bias", "int", 0, 0, 1, "1: bias_table is added; 0: it is not read")

ITERATIONS_ATTRIBUTE = Attribute("iterations", "int", 6, 1, 8, "iterations of the pseudoinverse")

BATCH_INIT_ATTRIBUTE = Attribute(
    "batch_init", "int", 0, 0, 1, "maxima of the start value: 0 per matrix, 1 over the whole batch"
)

LANDMARK_ATTRIBUTES = (
    Attribute("landmark_rows", "int", 4, 1, MAX_LANDMARKS, "rows of landmarks in a window"),
    Attribute("landmark_cols", "int", 4, 1, MAX_LANDMARKS, "columns of landmarks in a window"),
    ITERATIONS_ATTRIBUTE,
    BATCH_INIT_ATTRIBUTE,
)

KERNEL_ATTRIBUTES = (
    Attribute("threshold", "float", 5.0, -30.0, 30.0, "where exp is continued linearly"),
    Attribute("guard", "float", 0.02, 0.0, 0.5, "safe share of the denominator; 0: no guard"),
)


def cell_bounds(n: int, parts: int) -> list[tuple[int, int]]:
    """Return (start, end) of each cell of adaptive average pooling of ``n`` places to ``parts``."""
    return [(i * n // parts, -(-(i + 1) * n // parts)) for i in range(parts)]


def cuts_a_cell(window: int, shift: int, parts: int) -> bool:
    """Whether the region border of a shifted window is strictly inside a landmark's cell.

    The border at ``window - shift`` lies between two cells where it is a multiple of the exact
    side of a cell, window / parts: cells are that, rounded to whole places outwards.

    Args:
        window: Places of the window along one axis.
        shift: Places of the cyclic shift along it.
        parts: Landmarks along it.
    """
    return shift * parts % window != 0


WINDOW_RELATIONS = (
    Relation(
        lambda a: a.shift_h >= a.window_h,
        lambda a: f"attribute shift_h is {a.shift_h}; expected less than window_h, {a.window_h}",
    ),
    Relation(
        lambda a: a.shift_w >= a.window_w,
        lambda a: f"attribute shift_w is {a.shift_w}; expected less than window_w, {a.window_w}",
    ),
)
"""Shifts are smaller than windows."""


def _cut(border: int, window: int, what: str, parts: int) -> str:
    return (
        f"with mask 1 the region border at {border} of {window} {what} cuts a landmark's cell "
        f"({parts} cells); expected a border between cells: use mask 0, other landmarks or full "
        "attention (NystraWindowSoftmax) here"
    )


LANDMARK_RELATIONS = (
    *WINDOW_RELATIONS,
    Relation(
        lambda a: a.landmark_rows * a.landmark_cols > MAX_LANDMARKS,
        lambda a: (
            f"attributes landmark_rows and landmark_cols give {a.landmark_rows} x "
            f"{a.landmark_cols} landmarks; expected at most {MAX_LANDMARKS} in a window"
        ),
    ),
    Relation(
        lambda a: cuts_a_cell(a.window_h, a.shift_h, a.landmark_rows),
        lambda a: _cut(a.window_h - a.shift_h, a.window_h, "rows", a.landmark_rows),
        when="mask",
    ),
    Relation(
        lambda a: cuts_a_cell(a.window_w, a.shift_w, a.landmark_cols),
        lambda a: _cut(a.window_w - a.shift_w, a.window_w, "columns", a.landmark_cols),
        when="mask",
    ),
)
"""In addition: not too many landmarks, and no region border cuts a cell."""

LANDMARK_LIMITS = (Limit("MaxLandmarks", MAX_LANDMARKS, "landmarks of a window"),)
