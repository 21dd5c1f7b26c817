"""``NystraWindowCluster`` as a model-local ONNX function."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from ..body_builder import BodyBuilder
from ..window_body import WindowBody
from .body_bias import Bias
from .body_blocks import Blocks
from .schema import MAX_ROUNDS

NEVER, TINY = -1e30, 1e-30  # a logit without weight, and the offset of a count


class Clusters:
    """The keys (B nW, h, N, d) of windows, their mean taken away, in clusters.

    Attributes:
        members: 1 where a key is in a cluster, (B nW, h, N, m).
        centers: (B nW, h, m, d).
    """

    def __init__(self, windows: WindowBody, keys: str) -> None:
        """Start at the seeds; rounds beyond the attribute's number use a single key."""
        body = self._body = windows.body
        rows, cols = body.attribute("cluster_rows"), body.attribute("cluster_cols")
        self._cluster = body.count(body.op("Mul", rows, cols))
        down, across = self._seeds(rows, windows.window_h), self._seeds(cols, windows.window_w)
        places = body.op("Mul", body.reshape(down, -1, 1), windows.window_w)
        seeds = body.reshape(body.op("Add", places, body.reshape(across, 1, -1)), -1)
        self.centers = body.op("Gather", keys, seeds, axis=2)
        one = body.ints(1)
        for place in range(MAX_ROUNDS):
            continues = body.op("Greater", body.attribute("rounds"), body.ints(place))
            count = body.op("Where", continues, windows.tokens, one)
            some = body.op("Slice", keys, body.ints([0]), body.shape(count), body.ints([2]))
            moved = self._move_centers(some, self._members(some))
            self.centers = body.op("Where", continues, moved, self.centers)
        self.members = self._members(keys)
        self.centers = self._move_centers(keys, self.members)

    def _seeds(self, parts: str, size: str) -> str:
        body = self._body
        twice = body.op("Mul", body.count(parts), body.ints(2))
        middle = body.op("Mul", body.op("Add", twice, body.ints(1)), size)
        return body.op("Div", middle, body.op("Mul", parts, body.ints(2)))

    def _members(self, keys: str) -> str:
        """Return 1 for the nearest center of each key, the first of equal ones, otherwise 0."""
        body, centers = self._body, self.centers
        squares = body.reduce("ReduceSum", body.op("Mul", centers, centers), -1)
        half = body.swap(body.op("Mul", squares, body.number(0.5)), 4)
        nearness = body.op("Sub", body.op("MatMul", keys, body.swap(centers, 4)), half)
        if not body.stepped:
            nearest = body.op("ArgMax", nearness, axis=-1, keepdims=1)
            return body.float32(body.op("Equal", nearest, self._cluster))
        # Without integers: of equal maxima the one with the largest number, counted from the end.
        largest = body.op("Equal", nearness, body.reduce("ReduceMax", nearness, -1))
        numbers = body.float32(body.op("Sub", body.size(centers, 2), self._cluster))
        among = body.op("Where", largest, numbers, body.number(0.0))
        return body.float32(body.op("Equal", numbers, body.reduce("ReduceMax", among, -1)))

    def _move_centers(self, keys: str, members: str) -> str:
        """Return the centers moved to the means of their members; without members they stay."""
        body = self._body
        by_cluster = body.swap(members, 4)
        counts = body.reduce("ReduceSum", by_cluster, -1)
        divisor = body.op("Max", counts, body.number(1.0))
        means = body.op("Div", body.op("MatMul", by_cluster, keys), divisor)
        return body.op("Where", body.op("Greater", counts, body.number(0.0)), means, self.centers)


def sum_seen(windows: WindowBody, blocks: Blocks, bias: Bias, sums: str) -> tuple[str, str]:
    """Return the sums that each block sees of every cluster, both (B nW, h, blocks, m c).

    They are those in other blocks of the coarse bias, and those in its own one. ``sums`` are of a
    cluster's members in each block.
    """
    body = windows.body
    number = body.reshape(body.count(bias.blocks), -1, 1)
    members = body.float32(body.op("Equal", number, body.reshape(blocks.coarse, 1, -1)))
    of_coarse = body.op("MatMul", members, sums)
    others = body.op("MatMul", bias.block_means(windows), of_coarse)
    own = body.op("Gather", of_coarse, blocks.coarse, axis=2)
    inside = body.op("Gather", bias.inside(), blocks.coarse, axis=1)
    inside = body.op("Mul", inside, body.op("Sub", own, sums))
    return body.op("Gather", others, blocks.coarse, axis=2), inside


def compute_own_logits(
    nodes: BodyBuilder, blocks: Blocks, bias: Bias, own_q: str, own_k: str
) -> str:
    """Return the logits of the pairs in each block, (B nW, h blocks, places, places)."""
    real = nodes.op("Greater", blocks.real(1), nodes.number(0.0))
    filling = nodes.op("Where", real, nodes.number(0.0), nodes.number(NEVER))
    added = nodes.op("Add", bias.own(blocks), filling)
    return nodes.op("Add", nodes.op("MatMul", own_q, nodes.swap(own_k, 4)), added)


class Windows(NamedTuple):
    """The windows of a map, their keys in clusters, their tokens in blocks.

    Attributes:
        windows: The windows.
        q: Queries times the scale, (B nW, h, N, d).
        k: Keys without their mean, the same.
        v: Values, (B nW, h, N, e).
        clusters: The clusters of the keys.
        blocks: The blocks of exact attention.
        bias: The bias, of blocks and of tokens.
    """

    windows: WindowBody
    q: str
    k: str
    v: str
    clusters: Clusters
    blocks: Blocks
    bias: Bias


def cut_windows(nodes: BodyBuilder) -> Windows:
    """Write the nodes that both cluster forms begin with."""
    windows = WindowBody(nodes)
    q, k, v = windows.heads_apart()
    q = nodes.op("Mul", q, nodes.attribute("scale"))
    k = nodes.op("Sub", k, nodes.reduce("ReduceMean", k, -2))
    clusters = Clusters(windows, k)
    blocks = Blocks(windows)
    return Windows(windows, q, k, v, clusters, blocks, Bias(windows, nodes.inputs[1]))


def write(nodes: BodyBuilder) -> str:
    """Write the nodes; return the result."""
    op, number = nodes.op, nodes.number
    windows, q, k, v, clusters, blocks, bias = cut_windows(nodes)

    all_windows = op("Mul", windows.batch, windows.windows)
    column = nodes.shape(all_windows, windows.heads, windows.tokens, 1)
    counted = op("Concat", v, op("Expand", number(1.0), column), axis=-1)
    own_q, own_k, own_v = blocks.cut(q), blocks.cut(k), blocks.cut(counted)
    count = nodes.size(clusters.members, 3)
    members = op("Mul", blocks.cut(clusters.members), blocks.real(2))
    sums = op("MatMul", nodes.swap(members, 4), own_v)  # (B nW, h blocks, m, e + 1)
    own_blocks = op("Mul", windows.heads, blocks.count)
    sums = nodes.reshape(sums, all_windows, windows.heads, blocks.count, -1)
    seen = op("Add", *sum_seen(windows, blocks, bias, sums))
    seen = nodes.reshape(seen, all_windows, own_blocks, count, -1)

    bounds = [nodes.ints([0]), nodes.shape(windows.value_dim), nodes.ints([2**31])]
    totals, counts = (
        op("Slice", seen, start, end, nodes.ints([-1])) for start, end in pairwise(bounds)
    )
    divisor = op("Add", counts, number(TINY))
    some = op("Greater", counts, number(0.0))
    added = nodes.swap(op("Where", some, op("Log", divisor), number(NEVER)), 4)
    filled = nodes.reshape(own_q, all_windows, windows.heads, -1, windows.head_dim)
    far = op("MatMul", filled, nodes.swap(clusters.centers, 4))
    far = op("Add", nodes.reshape(far, all_windows, own_blocks, -1, count), added)
    own_logits = compute_own_logits(nodes, blocks, bias, own_q, own_k)

    weights = op("Softmax", op("Concat", far, own_logits, axis=-1), axis=-1)
    own_v = op("Slice", own_v, *bounds[:2], nodes.ints([-1]))
    values = op("Concat", op("Div", totals, divisor), own_v, axis=-2)
    return windows.merge(blocks.join(op("MatMul", weights, values)))
