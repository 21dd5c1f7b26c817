"""The parameters of ``cluster``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....core.option import option
from ....core.option_kinds import Grid, Number
from ....models.geometry import TokenGeometry, WindowGeometry
from ....plugins.operators.window_cluster.schema import (
    MAX_BIAS_BLOCKS,
    MAX_BLOCK,
    MAX_CLUSTERS,
    SCHEMA,
    count_blocks,
    cuts_a_block,
)
from ....plugins.operators.window_covariance import schema as covariance
from ....plugins.operators.window_schema import LARGEST_SIDE
from ..mechanism import Geometry, Windowed
from ..operator_option import operator_option

_DEFAULTS: tuple[tuple[int, tuple[int, int], int], ...] = (
    (48 * 48, (8, 8), 8),
    (32 * 32, (4, 4), 8),
    (0, (4, 4), 4),
)
"""Clusters and block of windows of at least so many tokens: in larger windows exact attention costs
so much more that finer settings still cost little."""


_FIRST_ORDER = (2, 2)
"""Clusters of order 1 in every window."""

_SETTINGS: tuple[tuple[tuple[int, int], int, int], ...] = (
    ((2, 2), 0, 0),
    ((4, 4), 0, 0),
    ((6, 6), 0, 0),
    ((8, 8), 0, 0),
    ((8, 8), 2, 0),
    ((2, 2), 0, 1),
    ((3, 3), 0, 1),
    ((4, 4), 0, 1),
)
"""Clusters, rounds and order that are measured where none of them is given."""

_SIDES = (4, 8)
"""Blocks that are measured where none is given."""

LARGEST = _DEFAULTS[0][0]
"""Number of tokens whose defaults maps and lists of any size have."""


@dataclass(frozen=True)
class Cluster(Windowed):
    """Clustered keys, and exact attention in the query's own block, with the position bias."""

    name = "cluster"
    site_classes = ("Windows", "Tokens")
    summary = (
        "exact in a query's own block, all other keys by clusters: linear, no retraining, keeps "
        "the position bias"
    )
    has_near_ties = True
    advice = "more `clusters`, a larger `block`"
    candidates = (
        ({"clusters": (2, 2), "block": 4}, True),
        ({"clusters": (4, 4), "block": 4}, True),
        ({"clusters": (8, 8), "block": 4}, False),
        ({"clusters": (2, 2), "block": 8}, False),
        ({"clusters": (4, 4), "block": 8}, True),
        ({"clusters": (6, 6), "block": 8}, False),
        ({"clusters": (8, 8), "block": 8}, False),
        ({"clusters": (8, 8), "block": 8, "rounds": 2}, False),
        ({"clusters": (2, 2), "block": 8, "order": 1}, False),
        ({"clusters": (3, 3), "block": 8, "order": 1}, False),
    )

    clusters: tuple[int, int] | None = option(
        Grid(
            None,
            "clusters of keys per window",
            "clusters",
            MAX_CLUSTERS,
            default_text="4x4 and more, as measured",
        )
    )
    block: int | None = option(
        Number(
            None,
            "side of the blocks of exact attention",
            2,
            MAX_BLOCK,
            default_text="4 or 8, as measured",
        )
    )
    rounds: int | None = option(
        replace(operator_option(SCHEMA, "rounds"), default=None, default_text="0, or measured")
    )
    order: int | None = option(
        Number(
            None,
            "1: a cluster also has the covariance of its keys and values; for smooth attention in "
            "large windows with few clusters",
            0,
            1,
            default_text="0, or measured",
        )
    )
    bias_block: int = option(
        Number(
            0,
            "side of the blocks that average the bias outside the own block; 0 is automatic",
            0,
            LARGEST_SIDE,
        )
    )

    def fits(self, geometry: Geometry) -> str:
        """Return why no block fits: a region border cuts it, or bias blocks are too many."""
        reason = super().fits(geometry) or self._too_many()
        if reason or not isinstance(geometry, WindowGeometry):
            return reason
        block, sides = self._blocks(geometry)
        if not sides:
            sizes = " x ".join(map(str, geometry.window))
            shifts = " x ".join(map(str, geometry.shift))
            return (
                f"a region border cuts every block of 2 to {block} (window {sizes}, shift "
                f"{shifts}); mask 'none' ignores the regions"
            )
        if self.bias_block and not self._takes(self.bias_block, block, geometry):
            return (
                f"bias_block {self.bias_block} is not a multiple of block, is cut by a "
                "region border, or is too small"
            )
        return ""

    def slower_than_exact(self, geometry: Geometry) -> str:
        """Return why a query has as many logits as keys, or ""."""
        chosen = self.at(geometry)
        clusters, block = chosen.sizes()
        if isinstance(geometry, WindowGeometry):
            queries = keys = geometry.window
            rows, columns = block, block
        elif isinstance(geometry, TokenGeometry) and geometry.before is None:
            queries, keys = map(flat_grid, (geometry.query_grid, geometry.key_grid))
            rows, columns = block_sides(block, queries, keys)
        else:
            return ""
        count = math.prod(keys)
        if queries[0] <= rows and queries[1] <= columns:
            return f"one block of {self.name} has all {count} keys, and exact attention is faster"
        if math.prod(clusters) == count:
            return (
                f"{self.name} has {count} clusters for {count} keys, and exact attention is faster"
            )
        return ""

    def _too_many(self) -> str:
        count = math.prod(self.clusters or (1, 1))
        if not self.order or count <= covariance.MAX_CLUSTERS:
            return ""
        return f"{count} clusters; order 1 has at most {covariance.MAX_CLUSTERS}"

    def at(self, geometry: Geometry) -> Cluster:
        """Return the mechanism with its sizes; the block is the largest that no border cuts."""
        free = isinstance(geometry, TokenGeometry) and geometry.before is not None
        tokens = 0
        if geometry is None or free:
            tokens = LARGEST
        if isinstance(geometry, WindowGeometry):
            tokens = geometry.tokens
        clusters, block = self.sizes(tokens)
        if isinstance(geometry, WindowGeometry):
            clusters = fit_clusters(clusters, geometry.window)
            block = self._blocks(geometry)[0]
        if isinstance(geometry, TokenGeometry) and not free:
            clusters = fit_clusters(clusters, flat_grid(geometry.key_grid))
        return replace(
            self,
            clusters=clusters,
            block=block,
            rounds=self.rounds or 0,
            order=self.order or 0,
        )

    def list_changes(self) -> dict[str, Any]:
        """Return the values that are not the default; no rounds and order 0 are, if not chosen."""
        changes = super().list_changes()
        return {name: value for name, value in changes.items() if value}

    def settings(self, geometry: Geometry) -> Sequence[Cluster]:
        """Return its usual setting first, then those of `_SETTINGS` and `_SIDES`.

        Without those that are slower than exact attention.
        """
        candidates = [self.at(geometry)]
        for clusters, rounds, order in self._numbers():
            for side in (self.block,) if self.block else _SIDES:
                tried = replace(self, clusters=clusters, block=side, rounds=rounds, order=order)
                if not tried.fits(geometry) and not tried.slower_than_exact(geometry):
                    candidates.append(tried.at(geometry))
        return [*dict.fromkeys(candidates)]

    def _numbers(self) -> list[tuple[tuple[int, int] | None, int | None, int | None]]:
        """Return clusters, rounds and order: the given ones, or all that agree with these."""
        if self.clusters:
            return [(self.clusters, self.rounds, self.order)]
        return [
            (clusters, rounds if self.rounds is None else self.rounds, order)
            for clusters, rounds, order in _SETTINGS
            if self.order in (None, order)
        ]

    def operations(self, head_dim: int, value_dim: int) -> float:
        """Return about the multiply-adds of a query; weights as measured with the CPU kernels.

        Of the logits of the own block, of those of clusters, of the distances from centers in each
        round, and of the covariances.
        """
        clusters, block = self.sizes()
        count = math.prod(clusters)
        own = block**2 * (head_dim + value_dim) / 2
        distances = 1.5 * (1 + (self.rounds or 0)) * count * head_dim
        covariances = (self.order or 0) * (4.5 + 1.5 * count) * head_dim * value_dim
        return own + count * (head_dim + value_dim) + distances + covariances

    def sizes(self, tokens: int = 0) -> tuple[tuple[int, int], int]:
        """Return clusters and block; defaults depend on the number of tokens in a window.

        Lists of tokens of a fixed number have the defaults of small windows.
        """
        defaults = (
            (clusters, block) for minimum, clusters, block in _DEFAULTS if tokens >= minimum
        )
        clusters, block = next(defaults)
        if self.order:
            clusters = _FIRST_ORDER
        return self.clusters or clusters, self.block or block

    def why_not_faster(self, tokens: int) -> str:
        """Return the counts if a query attends to half of the keys or more."""
        clusters, block = self.sizes(tokens)
        count = math.prod(clusters)
        own = block**2
        few = tokens <= 2 * (count + own)
        if few:
            return f"{tokens} tokens, {count} clusters and blocks of {own}"
        return ""

    def attributes(self, geometry: WindowGeometry, bias: bool) -> dict[str, Any]:
        """Return the attributes of the window operator.

        Args:
            geometry: Geometry of a site where the mechanism fits.
            bias: The site has a position bias.
        """
        clusters = fit_clusters(self.sizes(geometry.tokens)[0], geometry.window)
        block, sides = self._blocks(geometry)
        return geometry.attributes() | {
            "mask": self.choose_mask(geometry),
            "bias": int(bias),
            "cluster_rows": clusters[0],
            "cluster_cols": clusters[1],
            "rounds": self.rounds or 0,
            "block": block,
            "bias_block": self.bias_block or _bias_block(sides, geometry, bias),
        }

    def _blocks(self, geometry: WindowGeometry) -> tuple[int, list[int]]:
        """Return the largest block that fits, and the blocks of the bias that fit with it.

        Those of the bias are sorted; there are none where no block of 2 to the largest fits.
        """
        _, maximum = self.sizes(geometry.tokens)
        for block in range(maximum, 1, -1):
            largest = min(max(geometry.window) + block - 1, LARGEST_SIDE)
            sides = range(block, largest + 1, block)
            fitting = [side for side in sides if self._takes(side, block, geometry)]
            if fitting:
                return block, fitting
        return maximum, []

    def _takes(
        self,
        side: int,
        block: int,
        geometry: WindowGeometry,
    ) -> bool:
        axes = list(zip(geometry.window, geometry.shift, strict=True))
        uncut = not self.choose_mask(geometry) or not any(
            cuts_a_block(*axis, side) for axis in axes
        )
        limit = MAX_BIAS_BLOCKS
        if self.order:
            limit = covariance.MAX_BIAS_BLOCKS
        few = count_blocks(geometry.window, side) <= limit
        return side % block == 0 and uncut and few


def fit_clusters(clusters: tuple[int, int], sides: Sequence[int]) -> tuple[int, int]:
    """Return rows and columns of about as many clusters, at most as many as a grid has.

    Two clusters that start at one token have the same center, and rounding would choose between
    them. Grids of other than two sides have no clusters: the numbers stay.
    """
    if len(sides) != len(clusters):
        return clusters
    count = math.prod(clusters)
    rows, columns = (min(pair) for pair in zip(clusters, sides, strict=True))
    if rows < clusters[0]:
        columns = min(count // rows, sides[1])
    elif columns < clusters[1]:
        rows = min(count // columns, sides[0])
    return rows, columns


def block_sides(block: int, queries: tuple[int, int], keys: tuple[int, int]) -> tuple[int, int]:
    """Return rows and columns of the blocks of grids: of a line all places are along it."""
    if queries[0] == keys[0] == 1:
        return block, block**2
    return block, block


def flat_grid(grid: tuple[int, ...]) -> tuple[int, int]:
    """Return rows and columns of a grid whose frames are stacked vertically."""
    return math.prod(grid[:-1]), grid[-1]


def _bias_block(sides: list[int], geometry: WindowGeometry, bias: bool) -> int:
    """Return about the root of the window's side, with which the mean costs as much as clusters.

    Without a bias the mean is 1 everywhere, and the largest side costs least.
    """
    enough = [side for side in sides if 1.5 * side**2 >= max(geometry.window)]
    if bias and enough:
        return enough[0]
    return sides[-1]
