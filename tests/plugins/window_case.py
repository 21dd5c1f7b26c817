"""Rows, valid nodes and changes that the tests of the window operators share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance_case import Case
from operator_tests import OpenNode, Shape


@dataclass(frozen=True)
class WindowCase(Case):
    """A row whose first input is a map of heads, (B, H, W, h(2d+e))."""

    def output_shapes(self) -> list[tuple[int, ...]]:
        return [(*self.shape[:3], int(self.attributes["heads"] * self.attributes["value_dim"]))]

    def first(self, rng: np.random.Generator) -> np.ndarray:
        """As ``values`` says.

        ``equal_keys``: all keys are alike; ``far_keys``: their mean is ten times as far from 0 as
        they are from it; ``nan``: a key of head 0 of one token has one.
        """
        qkv = super().first(rng)
        start = int(self.attributes["heads"] * self.attributes["head_dim"])
        if self.values == "equal_keys":
            qkv[..., start : 2 * start] = qkv[0, 0, 0, start : 2 * start]
        if self.values == "far_keys":
            qkv[..., start : 2 * start] += 10
        if self.values == "nan":
            qkv[0, 0, 0, start] = np.nan
        return qkv


def window_row(
    name: str,
    size: tuple[int, int, int],
    heads: tuple[int, int, int],
    window: tuple[int, int],
    shift: tuple[int, int] = (0, 0),
    values: str = "normal",
    refused_by: frozenset[str] = frozenset(),
    dtypes: tuple[str, ...] = ("float32", "float16"),
    biased: bool = False,
    of: type[WindowCase] = WindowCase,
    **rest: int | float,
) -> WindowCase:
    """Return a row of a window operator; ``biased``: it has a table of position biases."""
    h, d, e = heads
    attributes = {
        "heads": h,
        "head_dim": d,
        "value_dim": e,
        "window_h": window[0],
        "window_w": window[1],
        "shift_h": shift[0],
        "shift_w": shift[1],
        "scale": d**-0.5,
        **rest,
    }
    table = None
    if biased:
        entries = (2 * window[0] - 1) * (2 * window[1] - 1)
        table = (entries, h) if rest.get("bias") else (1, 1)
    shape = (*size, h * (2 * d + e))
    return of(name, attributes, shape, table, values, dtypes, refused_by)


SIZES: dict[str, int | float] = {
    "heads": 2,
    "head_dim": 5,
    "value_dim": 3,
    "window_h": 8,
    "window_w": 8,
    "scale": 0.7,
}
BASE: dict[str, int | float] = {**SIZES, "shift_h": 4, "shift_w": 4, "mask": 1}
"""Attributes that changes are made to."""


def base_case(
    name: str, attributes: dict[str, int | float], table: int | None = None
) -> WindowCase:
    """Return a row that changes are made to; ``table``: rows of its bias table."""
    shape = None if table is None else (table, 2)
    return WindowCase(name, attributes, (2, 16, 16, 26), shape, values="large")


SIZE_CHANGES: dict[str, dict[str, int | float]] = {
    "heads": {"heads": 1, "head_dim": 10, "value_dim": 6},
    "window_h": {"window_h": 16, "shift_h": 8},
    "window_w": {"window_w": 4, "shift_w": 2},
}
"""Changes that would change a bias table's shape too."""

CHANGES: dict[str, dict[str, int | float]] = {
    "shift_h": {"shift_h": 0},
    "shift_w": {"shift_w": 0},
    "mask": {"mask": 0},
    "scale": {"scale": 0.71},
}
BIAS_CHANGE: dict[str, dict[str, int | float]] = {"bias": {"bias": 0}}

GOOD_SIZES: dict[str, Any] = {
    "heads": 2,
    "head_dim": 5,
    "value_dim": 3,
    "window_h": 8,
    "window_w": 4,
    "scale": 0.4,
}
GOOD: dict[str, Any] = {**GOOD_SIZES, "shift_h": 4, "shift_w": 2, "mask": 1}
"""Attributes of a good node."""

QKV = (2, 16, 8, 26)
"""The shape of its first input."""


def open_node(table: int | None = None) -> OpenNode:
    """Return a good node with open sizes; ``table``: rows of its bias table."""
    inputs: list[Shape] = [("b", "h", "w", 26)]
    if table is not None:
        inputs.append((table, 2))
    sizes = [{"b": 2, "h": 16, "w": 8}, {"b": 1, "h": 8, "w": 4}, {"b": 3, "h": 24, "w": 20}]
    return OpenNode(inputs, [("b", "h", "w", 6)], sizes)
