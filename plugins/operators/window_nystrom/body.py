"""``NystraWindowNystrom`` as a model-local ONNX function."""

from __future__ import annotations

import numpy as np

from ..body_builder import BodyBuilder
from ..landmark_body import LandmarkBody


def _kernel(body: BodyBuilder, logits: str, same: str) -> str:
    """Return exp(min(x, threshold)) + max(x - threshold, 0), and 0 between regions."""
    threshold = body.attribute("threshold")
    exponential = body.op("Exp", body.op("Min", logits, threshold))
    linear = body.op("Relu", body.op("Sub", logits, threshold))
    return body.op("Where", same, body.op("Add", exponential, linear), body.number(0.0))


def _pinv(windows: LandmarkBody, core: str, guarded: str) -> str:
    """Return Z; with a guard, 0 for a matrix whose iteration overflowed: its tokens are guarded."""
    body = windows.body
    z = windows.inverse(core)
    largest = body.op("ReduceSum", body.op("Abs", z), body.ints([-2, -1]), keepdims=1)
    finite = body.op("LessOrEqual", largest, body.number(float(np.finfo(np.float32).max)))
    usable = body.op("Or", finite, body.op("Not", guarded))
    return body.op("Where", usable, z, body.number(0.0))


def write(nodes: BodyBuilder) -> str:
    """Write the nodes; return the result.

    The output is a num + b soft with two factors a token. They are put on G_L, which has m
    columns where num and soft have e, so that both terms come from one product:
    [a G_L, b G_L] [Z G_U V; (G_U 1)^-1 G_U V].
    """
    windows = LandmarkBody(nodes)
    q, k, v = windows.heads_apart()
    op, number = nodes.op, nodes.number
    guard = nodes.attribute("guard")
    guarded = op("Greater", guard, number(0.0))

    left_logits, core_logits, upper_logits = windows.logits(q, k)
    left = _kernel(nodes, left_logits, windows.left_same)
    core = _kernel(nodes, core_logits, windows.core_same)
    upper = _kernel(nodes, upper_logits, windows.upper_same)
    z = _pinv(windows, core, guarded)
    sums = nodes.reduce("ReduceSum", upper, -1)  # G_U 1, (B nW, h, m, 1)
    upper_values = op("MatMul", upper, v)

    p = op("MatMul", left, z)
    den = op("MatMul", p, sums)
    tiny = number(1e-30)
    mag = op("Max", op("MatMul", op("Abs", p), sums), tiny)
    safe_guard = op("Where", guarded, guard, number(1.0))
    share = op("Div", op("Sub", op("Div", den, mag), safe_guard), safe_guard)
    positive = op("Greater", share, number(0.0))  # false for NaN too
    t = op("Where", positive, op("Min", share, number(1.0)), number(0.0))
    safe_den = op("Where", positive, op("Max", den, op("Mul", guard, mag)), number(1.0))
    unguarded = op("Reciprocal", op("Add", den, number(1e-12)))
    a = op("Where", guarded, op("Div", t, safe_den), unguarded)
    left_sums = op("Max", nodes.reduce("ReduceSum", left, -1), tiny)
    b = op("Div", op("Sub", number(1.0), t), left_sums)
    b = op("Where", guarded, b, number(0.0))

    soft_values = op("Div", upper_values, op("Max", sums, tiny))
    both_left = op("Concat", op("Mul", left, a), op("Mul", left, b), axis=-1)
    both_values = op("Concat", op("MatMul", z, upper_values), soft_values, axis=-2)
    return windows.merge(op("MatMul", both_left, both_values))
