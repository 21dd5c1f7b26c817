"""``NystraWindowCovariance`` in float64 numpy, written from the formula."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nystra.plugins.operators.schema import Attributes
from nystra.plugins.operators.window_covariance.schema import SCHEMA
from reference.window_cluster import blocks_of, clusters_of, in_windows
from reference.windows import Array, Head


def _attention(head: Head, bias: Array, coarse: Array, attributes: Attributes) -> Array:
    """Return the attention (N, e) of a head in a window; arguments as of ``window_cluster``."""
    q = attributes["scale"] * head.q
    k = head.k - head.k.mean(axis=0)
    member, centers = clusters_of(k, attributes)
    blocks = blocks_of(attributes, int(attributes["block"]))
    in_coarse = np.empty(len(k), dtype=np.int64)
    for number, tokens in enumerate(blocks_of(attributes, int(attributes["bias_block"]))):
        in_coarse[tokens] = number
    out = np.empty((len(k), head.v.shape[1]))
    for own in blocks:
        weight = coarse[in_coarse[own[0]]][in_coarse] * (head.regions == head.regions[own[0]])
        weight[own] = 0
        logits = [q[own] @ k[own].T + bias[np.ix_(own, own)]]
        values = [np.broadcast_to(head.v[own], (len(own), *head.v[own].shape))]
        for cluster in range(len(centers)):
            w = np.where(member == cluster, weight, 0)
            if not w.sum() > 0:
                continue
            share = w / w.sum()
            mean_k, mean_v = share @ k, share @ head.v
            covariance = ((k - mean_k) * share[:, None]).T @ (head.v - mean_v)
            logits.append((q[own] @ mean_k + np.log(w.sum()))[:, None])
            values.append((mean_v + q[own] @ covariance)[:, None])
        joined = np.concatenate(logits, axis=1)
        weights = np.exp(joined - joined.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        out[own] = np.einsum("nj,nje->ne", weights, np.concatenate(values, axis=1))
    return np.clip(out, head.v.min(axis=0), head.v.max(axis=0))


def reference(qkv: npt.ArrayLike, bias_table: npt.ArrayLike, **attributes: object) -> Array:
    """Return attention to clusters with covariance and exact own blocks in windows.

    A query in block J sees of each cluster the members outside J, each weighted with the mean of
    exp(bias) over the two blocks, by their mean key k', mean value v', total weight n and
    covariance C of keys and values: its logit is q.k' + ln n, its value v' + q C. The result is
    limited to the range of the values of the window. Arguments, results and errors are those of
    ``window_cluster``.
    """
    return in_windows(SCHEMA, _attention, qkv, bias_table, attributes)
