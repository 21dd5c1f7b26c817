"""What the window operators have in common: their attributes and the rules between them."""

from __future__ import annotations

from ...core.errors import NystraError
from .schema import Attribute, Attributes

LARGEST_SIDE = 1024
"""The largest side of a window, in tokens."""

MAX_LANDMARKS = 64
"""The most landmarks a window may have: what the kernels hold in registers and caches."""

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

SCALE_ATTRIBUTE = Attribute("scale", "float", None, 0.0, 1e6, "factor of q.k, mostly d ** -0.5")

BIAS_ATTRIBUTE = Attribute("bias", "int", 0, 0, 1, "1: bias_table is added; 0: it is not read")

ITERATIONS_ATTRIBUTE = Attribute("iterations", "int", 6, 1, 8, "steps of the pseudoinverse")

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
    """Say whether the region border of a shifted window lies strictly inside a landmark's cell.

    Args:
        window: Places of the window along one axis.
        shift: Places of the cyclic shift along it; the border is at ``window - shift``.
        parts: Landmarks along it.
    """
    border = window - shift
    return shift > 0 and any(start < border < end for start, end in cell_bounds(window, parts))


def window_rule(owner: str, attributes: Attributes) -> None:
    """Check shifts against windows.

    Raises:
        NystraError: A shift is not smaller than its window.
    """
    for axis in ("h", "w"):
        window, shift = attributes[f"window_{axis}"], attributes[f"shift_{axis}"]
        if shift >= window:
            raise NystraError(
                f"{owner}: shift_{axis} is {shift}; expected less than window_{axis}, {window}"
            )


def landmark_rule(owner: str, attributes: Attributes) -> None:
    """Check shifts, the number of landmarks, and that no region border cuts a cell.

    Raises:
        NystraError: A shift is too large, there are too many landmarks, or the mask cuts a cell.
    """
    window_rule(owner, attributes)
    rows, cols = attributes["landmark_rows"], attributes["landmark_cols"]
    if rows * cols > MAX_LANDMARKS:
        raise NystraError(
            f"{owner}: {rows} x {cols} landmarks; expected at most {MAX_LANDMARKS} in a window"
        )
    if not attributes["mask"]:
        return
    for axis, parts, what in (("h", rows, "rows"), ("w", cols, "columns")):
        window, shift = int(attributes[f"window_{axis}"]), int(attributes[f"shift_{axis}"])
        if cuts_a_cell(window, shift, int(parts)):
            raise NystraError(
                f"{owner}: with mask 1 the region border at {window - shift} of {window} {what} "
                f"cuts a landmark's cell ({parts} cells); expected a border between cells: "
                "use mask 0, other landmarks or full attention (NystraWindowSoftmax) here"
            )
