"""``NystraWindowCluster`` in float64 numpy, written from the formula."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from nystra.plugins.operators.schema import Attributes, OperatorSchema
from nystra.plugins.operators.window_cluster.schema import SCHEMA, cluster_seeds
from reference.windows import Array, Head, empty_output, heads_in_windows, position_bias

Tokens = npt.NDArray[np.int64]


def blocks_of(attributes: Attributes, side: int) -> list[Tokens]:
    """Return the tokens of each block of that side of a window; the last may be smaller."""
    height, width = int(attributes["window_h"]), int(attributes["window_w"])
    token = np.arange(height * width).reshape(height, width)
    return [
        token[top : top + side, left : left + side].reshape(-1)
        for top in range(0, height, side)
        for left in range(0, width, side)
    ]


def clusters_of(k: Array, attributes: Attributes) -> tuple[Tokens, Array]:
    """Return the cluster of each key (N,) and the clusters' centers (m, d) of the keys (N, d).

    Centers start as the keys in the middle of a grid's cells. In each round every key is assigned
    to the nearest center, the first of equal ones; then a center becomes the mean of its members,
    or stays if it has none.
    """
    height, width = int(attributes["window_h"]), int(attributes["window_w"])
    rows = cluster_seeds(height, int(attributes["cluster_rows"]))
    cols = cluster_seeds(width, int(attributes["cluster_cols"]))
    centers = np.stack([k[row * width + col] for row in rows for col in cols])
    member = np.zeros(len(k), dtype=np.int64)
    for _ in range(int(attributes["rounds"]) + 1):
        member = np.argmax(k @ centers.T - (centers**2).sum(axis=1) / 2, axis=1)
        for cluster in range(len(centers)):
            if (member == cluster).any():
                centers[cluster] = k[member == cluster].mean(axis=0)
    return member, centers


def _mean_exp(bias: Array, blocks: list[Tokens]) -> Array:
    """Return the mean of exp(bias) over the pairs of each two blocks, from the bias (N, N)."""
    return np.array([[np.exp(bias[np.ix_(i, j)]).mean() for j in blocks] for i in blocks])


def attention(head: Head, bias: Array, coarse: Array, attributes: Attributes) -> Array:
    """Return the attention (N, e) of a head in a window.

    Args:
        head: Its tokens.
        bias: Bias of each pair of tokens, (N, N).
        coarse: Mean of exp(bias) for each pair of blocks of ``bias_block``.
        attributes: Those of the schema.
    """
    q = attributes["scale"] * head.q
    k = head.k - head.k.mean(axis=0)
    member, centers = clusters_of(k, attributes)
    blocks = blocks_of(attributes, int(attributes["block"]))
    in_coarse = np.empty(len(k), dtype=np.int64)
    for number, tokens in enumerate(blocks_of(attributes, int(attributes["bias_block"]))):
        in_coarse[tokens] = number
    out = np.empty((len(k), head.v.shape[1]))
    for own in blocks:
        count, total = np.zeros(len(centers)), np.zeros((len(centers), head.v.shape[1]))
        for other in blocks:
            if other is own or head.regions[other[0]] != head.regions[own[0]]:
                continue
            weight = coarse[in_coarse[own[0]], in_coarse[other[0]]]
            for token in other:
                count[member[token]] += weight
                total[member[token]] += weight * head.v[token]
        seen = count > 0
        far = q[own] @ centers[seen].T + np.log(count[seen])
        near = q[own] @ k[own].T + bias[np.ix_(own, own)]
        logits = np.concatenate([far, near], axis=1)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        values = np.concatenate([total[seen] / count[seen, None], head.v[own]])
        out[own] = weights @ values / weights.sum(axis=1, keepdims=True)
    return out


Attend = Callable[[Head, Array, Array, Attributes], Array]


def in_windows(
    schema: OperatorSchema,
    attend: Attend,
    qkv: npt.ArrayLike,
    bias_table: npt.ArrayLike,
    attributes: dict[str, object],
) -> Array:
    """Return the attention of every head of every window, (B, H, W, h e)."""
    checked = schema.validate(attributes)
    qkv = np.asarray(qkv, dtype=np.float64)
    table = np.asarray(bias_table, dtype=np.float64)
    window = int(checked["window_h"]), int(checked["window_w"])
    tokens = window[0] * window[1]
    bias = [
        position_bias(table, head, *window) if checked["bias"] else np.zeros((tokens, tokens))
        for head in range(int(checked["heads"]))
    ]
    blocks = blocks_of(checked, int(checked["bias_block"]))
    coarse = [_mean_exp(of_head, blocks) for of_head in bias]
    out = empty_output(qkv, checked)
    for head in heads_in_windows(qkv, checked):
        number = head.number
        out[head.place] = attend(head, bias[number], coarse[number], checked)
    return out


def reference(qkv: npt.ArrayLike, bias_table: npt.ArrayLike, **attributes: object) -> Array:
    """Return attention with clustered keys and exact own blocks in windows.

    With c the center of a cluster and n its members outside the query's block J, each counted
    with the mean of exp(bias) over the two blocks, a query's logits are q.c + ln n for every
    cluster, whose value is the mean v of those members, and q.k + bias for every token of J.

    Args:
        qkv: (B, H, W, h(2d+e)).
        bias_table: ((2wh-1)(2ww-1), h); any one element where ``bias`` is 0.
        **attributes: Those of the schema.

    Returns:
        (B, H, W, h e) in float64.

    Raises:
        NystraError: The schema refuses the attributes (a cut block among them), or the map is no
            multiple of the window.
    """
    return in_windows(SCHEMA, attention, qkv, bias_table, attributes)
