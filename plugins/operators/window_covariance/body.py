"""``NystraWindowCovariance`` as a model-local ONNX function."""

from __future__ import annotations

from ..body_builder import BodyBuilder
from ..window_body import WindowBody
from ..window_cluster.body import NEVER, TINY, compute_own_logits, cut_windows, sum_seen
from ..window_cluster.body_blocks import Blocks


class _Channels:
    """What is summed over the members of a cluster: value, 1, key, products of key and value."""

    def __init__(self, windows: WindowBody) -> None:
        self._body = body = windows.body
        pairs = body.op("Mul", windows.head_dim, windows.value_dim)
        end = windows.value_dim
        self._bounds = [body.ints([0]), body.shape(end)]
        for size in (body.ints(1), windows.head_dim, pairs):
            end = body.op("Add", end, size)
            self._bounds.append(body.shape(end))

    def part(self, sums: str, which: int) -> str:
        """Return the sums of values (0), the counts (1), the sums of keys (2) or products (3)."""
        axis = self._body.ints([-1])
        return self._body.op("Slice", sums, *self._bounds[which : which + 2], axis)


def _sum_members(windows: WindowBody, blocks: Blocks, members: str, k: str, v: str) -> str:
    """Return the sums of each cluster's members in each block, (B nW, h blocks, m, c)."""
    nodes = windows.body
    all_windows = nodes.op("Mul", windows.batch, windows.windows)
    own_blocks = nodes.op("Mul", windows.heads, blocks.count)
    count = nodes.size(members, 3)
    column = nodes.shape(all_windows, own_blocks, blocks.places, 1)
    ones = nodes.op("Expand", nodes.number(1.0), column)
    summed = nodes.op("Concat", v, ones, k, axis=-1)
    sums = nodes.op("MatMul", nodes.swap(members, 4), summed)
    marked = nodes.op(
        "Mul",
        nodes.reshape(members, -1, count, 1),
        nodes.reshape(k, -1, 1, windows.head_dim),
    )
    marked = nodes.reshape(marked, all_windows, own_blocks, blocks.places, -1)
    products = nodes.op("MatMul", nodes.swap(marked, 4), v)
    products = nodes.reshape(products, all_windows, own_blocks, count, -1)
    return nodes.op("Concat", sums, products, axis=-1)


def write(nodes: BodyBuilder) -> str:
    """Write the nodes; return the result."""
    op, number = nodes.op, nodes.number
    windows, q, k, v, clusters, blocks, bias = cut_windows(nodes)
    channels = _Channels(windows)

    all_windows = op("Mul", windows.batch, windows.windows)
    own_blocks = op("Mul", windows.heads, blocks.count)
    own_q, own_k, own_v = blocks.cut(q), blocks.cut(k), blocks.cut(v)
    members = op("Mul", blocks.cut(clusters.members), blocks.real(2))
    count = nodes.size(members, 3)
    sums = _sum_members(windows, blocks, members, own_k, own_v)
    sums = nodes.reshape(sums, all_windows, windows.heads, blocks.count, -1)
    elsewhere, own_sums = (
        nodes.reshape(part, all_windows, own_blocks, count, -1)
        for part in sum_seen(windows, blocks, bias, sums)
    )
    remaining = op("Greater", channels.part(own_sums, 1), number(0.0))
    seen = op("Add", elsewhere, op("Where", remaining, own_sums, number(0.0)))

    totals, counts, keys, products = (channels.part(seen, which) for which in range(4))
    divisor = op("Add", counts, number(TINY))
    means, keys = op("Div", totals, divisor), op("Div", keys, divisor)
    outer = op(
        "Mul",
        nodes.reshape(keys, -1, windows.head_dim, 1),
        nodes.reshape(means, -1, 1, windows.value_dim),
    )
    tilts = nodes.reshape(op("Div", products, divisor), -1, windows.head_dim, windows.value_dim)
    tilts = nodes.reshape(op("Sub", tilts, outer), all_windows, own_blocks, -1, windows.value_dim)

    some = op("Greater", counts, number(0.0))
    added = nodes.swap(op("Where", some, op("Log", divisor), number(NEVER)), 4)
    far = op("MatMul", own_q, nodes.swap(keys, 4))
    own_logits = compute_own_logits(nodes, blocks, bias, own_q, own_k)
    logits = op("Concat", op("Add", far, added), own_logits, axis=-1)
    weights = op("Softmax", logits, axis=-1)

    shares = op("Slice", weights, nodes.ints([0]), nodes.shape(count), nodes.ints([-1]))
    tilted = op(
        "Mul",
        nodes.reshape(shares, -1, count, 1),
        nodes.reshape(own_q, -1, 1, windows.head_dim),
    )
    tilted = nodes.reshape(tilted, all_windows, own_blocks, blocks.places, -1)
    values = op("Concat", means, own_v, axis=-2)
    result = op("Add", op("MatMul", weights, values), op("MatMul", tilted, tilts))
    result = blocks.join(result)
    result = op("Max", result, nodes.reduce("ReduceMin", v, -2))
    return windows.merge(op("Min", result, nodes.reduce("ReduceMax", v, -2)))
