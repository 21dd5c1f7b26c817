"""The geometry that a site passes to its implementation with the tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ..plugins.operators.window_geometry import WindowGeometry

__all__ = ["PatchGeometry", "TokenGeometry", "WindowGeometry"]


@dataclass(frozen=True)
class TokenGeometry:
    """The geometry of a token site: the grid on which landmarks are pooled, and the scale.

    Attributes:
        query_grid: Sides of the grid of queries: (rows, columns) or (frames, rows, columns); of
            rows and columns, one row for a line, if they are free. () until a run tells free ones.
        key_grid: Sides of the grid of keys.
        scale: Factor of the scores.
        margin: Tokens by which the grid of keys extends beyond that of the queries on each side; ()
            if both cover the same area.
        before: Numbers of queries and of keys before those of grids whose sides are free; None for
            fixed grids, which tell it.
        separate: Keys of a free grid are at other places than the queries.
        biased: Something is added to scores between free grids.
    """

    query_grid: tuple[int, ...]
    key_grid: tuple[int, ...]
    scale: float
    margin: tuple[int, ...] = ()
    before: tuple[int, int] | None = None
    separate: bool = False
    biased: bool = False

    def tokens_before(self, queries: int, keys: int) -> tuple[int, int]:
        """Return the numbers of tokens before those of the grids, of so many queries and keys."""
        grids = math.prod(self.query_grid), math.prod(self.key_grid)
        return self.before or (queries - grids[0], keys - grids[1])


@dataclass(frozen=True)
class PatchGeometry:
    """The patches that a patch site compares, and the values that it pastes for matches.

    With P(m, i) the ``patch`` x ``patch`` neighborhood of place i of map m (all channels; outside
    the map as ``border`` says), the score of query i and key j is

    * ``dot``: <P(query, i), P(key, j) / n(j)>, n as ``key_norm`` says;
    * ``l2``: -|P(query, i) - P(key, j)|^2;

    then the fusing, the mask, and a softmax over the keys of ``scale`` times the score.

    Attributes:
        patch: Odd side of the compared patches.
        metric: ``dot`` or ``l2``.
        scale: Factor of the scores, an inverse temperature.
        key_norm: n(j) of ``dot``: ``none`` is 1, ``floor`` max(|P|, key_epsilon), ``ridge``
            sqrt(sum of (P^2 + key_epsilon)).
        key_epsilon: Epsilon of ``key_norm``.
        border: Outside of query and key map: ``zero``, or ``replicate`` for the edge.
        shrink: Query, key and mask are taken at every ``shrink``-th row and column, the first
            one included; H, W, Hk, Wk below are the sizes after it.
        fuse: Side of the diagonal filter of the score matrix (``patches.fuse_scores``), 0 for none.
        value_patch: Side of the value patches in pixels of the value map.
        value_stride: Their step; key (y, x) owns the value patch whose first pixel is
            stride * (y, x) - (value_patch - value_stride) / 2, zero outside the map. Query (y, x)
            pastes the weighted mean at the same place of the output; overlaps add up.
        divisor: The sum of the overlaps is divided by it.
        hard: Take the best key (all of them where they tie) instead of the softmax.
    """

    patch: int
    metric: Literal["dot", "l2"] = "dot"
    scale: float = 1.0
    key_norm: Literal["none", "floor", "ridge"] = "none"
    key_epsilon: float = 1e-4
    border: Literal["zero", "replicate"] = "zero"
    shrink: int = 1
    fuse: int = 0
    value_patch: int = 1
    value_stride: int = 1
    divisor: float = 1.0
    hard: bool = False

    def __post_init__(self) -> None:
        if self.patch % 2 == 0 or self.fuse % 2 == 0 < self.fuse:
            raise ValueError(f"patch {self.patch} and fuse {self.fuse} must be odd")
        over = self.value_patch - self.value_stride
        if self.value_patch % self.value_stride or over % 2:
            raise ValueError(
                f"value_patch {self.value_patch} must be a multiple of value_stride "
                f"{self.value_stride}, and extend beyond it by the same on both sides"
            )

    @property
    def reach(self) -> int:
        """Number of strides that a value patch covers."""
        return self.value_patch // self.value_stride

    @property
    def value_pad(self) -> int:
        """By how many pixels value patches extend beyond the border of the value map."""
        return (self.value_patch - self.value_stride) // 2
