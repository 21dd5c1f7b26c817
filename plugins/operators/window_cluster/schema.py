"""The schema of ``NystraWindowCluster``."""

from __future__ import annotations

from ....core.errors import NystraError
from ..schema import REVISION_ATTRIBUTE, Attribute, Attributes, OperatorSchema
from ..window_schema import (
    BIAS_ATTRIBUTE,
    LARGEST_SIDE,
    SCALE_ATTRIBUTE,
    WINDOW_ATTRIBUTES,
    window_rule,
)

MAX_CLUSTERS = 64
"""The most clusters a window may have: what the kernels hold in registers and caches."""

MAX_ROUNDS = 2
"""The most rounds of clustering beside the one there always is."""

MAX_BLOCK = 8
"""The largest side of a block whose tokens see each other exactly."""

MAX_BIAS_BLOCKS = 1024
"""The most blocks of the coarse bias in a window: its matrix has the square of it a head."""


def cluster_seeds(n: int, parts: int) -> list[int]:
    """Return the centre of each cell of ``n`` places cut into ``parts``."""
    return [(2 * i + 1) * n // (2 * parts) for i in range(parts)]


def blocks_fit(window: int, shift: int, block: int) -> bool:
    """Say whether no block of a shifted window holds tokens of two regions.

    Args:
        window: Places of the window along one axis.
        shift: Places of the cyclic shift along it; the border is at ``window - shift``.
        block: Places of a block along it.
    """
    return shift == 0 or (window - shift) % block == 0


def cluster_rule(owner: str, attributes: Attributes) -> None:
    """Check shifts, the number of clusters, and that no region border cuts a block.

    Raises:
        NystraError: A shift is too large, there are too many clusters or blocks, bias_block is no
            multiple of block, or the mask cuts a block.
    """
    window_rule(owner, attributes)
    rows, cols = int(attributes["cluster_rows"]), int(attributes["cluster_cols"])
    if rows * cols > MAX_CLUSTERS:
        raise NystraError(
            f"{owner}: {rows} x {cols} clusters; expected at most {MAX_CLUSTERS} in a window"
        )
    block, coarse = int(attributes["block"]), int(attributes["bias_block"])
    if coarse % block:
        raise NystraError(f"{owner}: bias_block is {coarse}; expected a multiple of block, {block}")
    down, across = (-(-int(attributes[f"window_{axis}"]) // coarse) for axis in "hw")
    if down * across > MAX_BIAS_BLOCKS:
        raise NystraError(
            f"{owner}: {down} x {across} blocks of bias_block {coarse} in a window; "
            f"expected at most {MAX_BIAS_BLOCKS}: take a larger bias_block"
        )
    if not attributes["mask"]:
        return
    for axis, what in (("h", "rows"), ("w", "columns")):
        window, shift = int(attributes[f"window_{axis}"]), int(attributes[f"shift_{axis}"])
        if not blocks_fit(window, shift, coarse):
            raise NystraError(
                f"{owner}: with mask 1 the region border at {window - shift} of {window} {what} "
                f"cuts a block of bias_block {coarse}; expected a border between blocks: use "
                "mask 0, smaller blocks or full attention (NystraWindowSoftmax) here"
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
    attributes=(
        *WINDOW_ATTRIBUTES,
        BIAS_ATTRIBUTE,
        SCALE_ATTRIBUTE,
        Attribute("cluster_rows", "int", 4, 1, MAX_CLUSTERS, "rows of seeds in a window"),
        Attribute("cluster_cols", "int", 4, 1, MAX_CLUSTERS, "columns of seeds in a window"),
        Attribute("rounds", "int", 0, 0, MAX_ROUNDS, "rounds of clustering beside the first"),
        Attribute("block", "int", 4, 2, MAX_BLOCK, "side of the blocks that are exact inside"),
        Attribute("bias_block", "int", 4, 2, LARGEST_SIDE, "side of the blocks of the coarse bias"),
        REVISION_ATTRIBUTE,
    ),
    rule=cluster_rule,
)
