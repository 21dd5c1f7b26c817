"""The schema of ``NystraPatchMatch``."""

from ..relation import Limit, Relation
from ..schema import REVISION_ATTRIBUTE, Attribute, OperatorSchema

L2, DOT, COSINE = 0, 1, 2
"""The values of ``metric``."""

STEPS = (8, 4, 2, 1)
"""Steps of the four propagation passes of an iteration, in their order."""

SMALLEST_NORM = 1e-6
"""The norm of a patch is at least this in the cosine metric."""

MAX_PATCH_SIZE = 23
"""The largest side of a patch."""

MAX_NEIGHBORS = 32
"""The largest number of entries per row, limited by the registers and caches of the kernels."""

LARGEST_MAP = 1 << 24
"""A map has fewer pixels than this: indices are exact in float32 and sums stay below 2**31."""

SCHEMA = OperatorSchema(
    name="NystraPatchMatch",
    doc=(
        "Approximate k nearest patches: for every pixel of query (B, C, H, W) the k pixels of key "
        "(B, C, Hk, Wk) whose patches score best, as index (B, k, H, W) int32 = y*Wk + x and score "
        "(B, k, H, W), best first, equal scores by smaller index, no index twice; patches are "
        "clamped at the borders. query_mask broadcasts to (B, 1, H, W), key_mask to (B, 1, Hk, Wk),"
        " start to (B, k, H, W); pixels whose mask is 0 or less are ignored, a start of -1 means "
        "none. Where there are fewer than k keys: index -1, score -inf. Deterministic for a seed."
    ),
    inputs=("query", "key", "query_mask", "key_mask", "start"),
    outputs=("index", "score"),
    attributes=(
        Attribute("patch_size", "int", 7, 1, MAX_PATCH_SIZE, "p, side of a patch, odd"),
        Attribute("iterations", "int", 5, 1, 16, "rounds of propagation and random search"),
        Attribute("neighbors", "int", 3, 1, MAX_NEIGHBORS, "k, entries of a row"),
        Attribute(
            "metric", "int", L2, L2, COSINE, "0: minus the sum of squares; 1: dot; 2: cosine"
        ),
        Attribute("seed", "int", 0, 0, 4095, "which random numbers are drawn"),
        REVISION_ATTRIBUTE,
    ),
    int32=("start", "index"),
    plugin="NystraPatchMatch",
    relations=(
        Relation(
            lambda a: a.patch_size % 2 == 0,
            lambda a: f"attribute patch_size is {a.patch_size}; expected an odd number",
        ),
    ),
    limits=(
        Limit("MaxPixels", LARGEST_MAP, "pixels of a map that is searched: fewer"),
        Limit("MaxPatch", MAX_PATCH_SIZE, "side of a patch"),
        Limit("MaxNeighbors", MAX_NEIGHBORS, "entries of a row"),
        Limit("L2", L2, "metric"),
        Limit("Dot", DOT, "metric"),
        Limit("Cosine", COSINE, "metric"),
    ),
)
