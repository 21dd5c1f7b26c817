"""The schema of ``NystraWindowCluster``."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import mul

from ..relation import Limit, Relation, ceil_div
from ..schema import REVISION_ATTRIBUTE, Attribute, OperatorSchema
from ..window_schema import (
    BIAS_ATTRIBUTE,
    LARGEST_SIDE,
    SCALE_ATTRIBUTE,
    WINDOW_ATTRIBUTES,
    WINDOW_RELATIONS,
)

MAX_CLUSTERS = 64
"""The largest number of clusters per window, limited by the registers and caches of the kernels."""

MAX_ROUNDS = 2
"""The largest number of rounds of clustering after the first, which there always is."""

MAX_BLOCK = 8
"""The largest side of a block whose tokens see each other exactly."""

MAX_BIAS_BLOCKS = 1024
"""The largest number of blocks of the coarse bias in a window; a head has the square of it."""


def cluster_seeds(n: int, parts: int) -> list[int]:
    """Return the center of each cell of ``n`` places cut into ``parts``."""
    return [(2 * i + 1) * n // (2 * parts) for i in range(parts)]


def cuts_a_block(window: int, shift: int, block: int) -> bool:
    """Return whether a block of a shifted window has tokens of two regions.

    Args:
        window: Places of the window along one axis.
        shift: Places of the cyclic shift along it; the border is at ``window - shift``.
        block: Places of a block along it.
    """
    return (shift > 0) & ((window - shift) % block != 0)


def count_blocks(window: Iterable[int], block: int) -> int:
    """Return the number of blocks of that side in a window; the last ones may be smaller."""
    blocks: int = reduce(mul, (ceil_div(side, block) for side in window))
    return blocks


def _cut(border: int, window: int, what: str, block: int) -> str:
    return (
        f"with mask 1 the region border at {border} of {window} {what} cuts a block of bias_block "
        f"{block}; expected a border between blocks: use mask 0, smaller blocks or full attention "
        "(NystraWindowSoftmax) here"
    )


def cluster_relations(max_clusters: int, max_bias_blocks: int) -> tuple[Relation, ...]:
    """Return the relations between the attributes of an operator with clustered keys."""
    return (*WINDOW_RELATIONS, _clusters(max_clusters), *_bias_blocks(max_bias_blocks), *_BORDERS)


def _clusters(largest: int) -> Relation:
    return Relation(
        lambda a: a.cluster_rows * a.cluster_cols > largest,
        lambda a: (
            f"attributes cluster_rows and cluster_cols give {a.cluster_rows} x {a.cluster_cols} "
            f"clusters; expected at most {largest} in a window"
        ),
    )


def _bias_blocks(largest: int) -> tuple[Relation, ...]:
    return (
        Relation(
            lambda a: a.bias_block % a.block != 0,
            lambda a: (
                f"attribute bias_block is {a.bias_block}; expected a multiple of block, {a.block}"
            ),
        ),
        Relation(
            lambda a: count_blocks((a.window_h, a.window_w), a.bias_block) > largest,
            lambda a: (
                f"attribute bias_block is {a.bias_block}, which cuts a window into "
                f"{ceil_div(a.window_h, a.bias_block)} x {ceil_div(a.window_w, a.bias_block)} "
                f"blocks; expected at most {largest}: take a larger bias_block"
            ),
        ),
    )


_BORDERS = (
    Relation(
        lambda a: cuts_a_block(a.window_h, a.shift_h, a.bias_block),
        lambda a: _cut(a.window_h - a.shift_h, a.window_h, "rows", a.bias_block),
        when="mask",
    ),
    Relation(
        lambda a: cuts_a_block(a.window_w, a.shift_w, a.bias_block),
        lambda a: _cut(a.window_w - a.shift_w, a.window_w, "columns", a.bias_block),
        when="mask",
    ),
)

CLUSTER_ATTRIBUTES = (
    *WINDOW_ATTRIBUTES,
    BIAS_ATTRIBUTE,
    SCALE_ATTRIBUTE,
    Attribute("cluster_rows", "int", 4, 1, MAX_CLUSTERS, "rows of seeds in a window"),
    Attribute("cluster_cols", "int", 4, 1, MAX_CLUSTERS, "columns of seeds in a window"),
    Attribute("rounds", "int", 0, 0, MAX_ROUNDS, "rounds of clustering after the first"),
    Attribute("block", "int", 4, 2, MAX_BLOCK, "side of the blocks of exact attention"),
    Attribute("bias_block", "int", 4, 2, LARGEST_SIDE, "side of the blocks of the coarse bias"),
    REVISION_ATTRIBUTE,
)

SCHEMA = OperatorSchema(
    name="NystraWindowCluster",
    doc=(
        "Attention with clustered keys in the windows of qkv (B, H, W, h(2d+e)), to (B, H, W, h e)."
        " A query sees the tokens of its own block (block x block) exactly, with the relative "
        "position bias of bias_table ((2wh-1)(2ww-1), h) (one element where bias is 0), and all "
        "others as members of cluster_rows cluster_cols clusters of keys: each cluster is one key "
        "at its centre, counted with exp(bias), averaged over blocks of bias_block. "
        "With mask 1, tokens of other Swin regions are not seen."
    ),
    inputs=("qkv", "bias_table"),
    outputs=("out",),
    attributes=CLUSTER_ATTRIBUTES,
    relations=cluster_relations(MAX_CLUSTERS, MAX_BIAS_BLOCKS),
    limits=(
        Limit("MaxClusters", MAX_CLUSTERS, "clusters of a window"),
        Limit("MaxBlock", MAX_BLOCK, "side of a block that is exact inside"),
        Limit("MaxBiasBlocks", MAX_BIAS_BLOCKS, "blocks of the coarse bias in a window"),
    ),
)
