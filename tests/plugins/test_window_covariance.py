"""Clusters with covariance in limiting cases, and that a wrong kernel would be found."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from conformance_case import Case
from conformance_cases import CASES, expected
from conformance_tolerance import allowed, check, plain
from nystra.plugins.operators.window_cluster import torch_op as cluster_op
from nystra.plugins.operators.window_covariance import torch_op
from reference.window_cluster import reference as of_order_0
from reference.window_covariance import reference
from reference.window_softmax import reference as exact
from wrong_clusters import WRONG

WINDOW: dict[str, Any] = {
    "heads": 2,
    "head_dim": 6,
    "value_dim": 5,
    "window_h": 16,
    "window_w": 16,
    "shift_h": 8,
    "shift_w": 8,
    "mask": 1,
    "bias": 1,
    "scale": 0.4,
    "cluster_rows": 2,
    "cluster_cols": 2,
    "rounds": 0,
    "block": 4,
    "bias_block": 4,
}
NAMES = [
    *("heads", "head_dim", "value_dim", "window_h", "window_w", "shift_h", "shift_w", "mask"),
    *("bias", "scale", "cluster_rows", "cluster_cols", "rounds", "block", "bias_block"),
]
ROW = next(
    case
    for case in CASES
    if case.operator == "NystraWindowCovariance"
    and case.all_attributes()["bias"]
    and case.attributes["window_h"] == 16
)


def tensors(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((1, 16, 16, 34)), rng.standard_normal((31 * 31, 2))


def test_smooth_attention_loses_far_less_than_without_covariance() -> None:
    """Of small logits an error of second order is left."""
    qkv, _ = tensors()
    qkv[..., :12] *= 0.1
    free = {**WINDOW, "bias": 0, "cluster_rows": 1, "cluster_cols": 1}
    names = NAMES[: NAMES.index("cluster_rows")]
    want = exact(qkv, [[0.0]], **{name: free[name] for name in names})
    first = np.abs(reference(qkv, [[0.0]], **free) - want).max()
    zeroth = np.abs(of_order_0(qkv, [[0.0]], **free) - want).max()
    assert first < 0.2 * zeroth


@pytest.mark.parametrize("factor", [0.0, 1e-3, 100.0, 1e4])
def test_every_result_is_between_the_values(factor: float) -> None:
    qkv, table = (torch.from_numpy(array).float() for array in tensors())
    qkv[..., :24] *= factor
    arguments = [WINDOW[name] for name in NAMES]
    for out in (
        torch_op.window_covariance(qkv, table, **WINDOW),
        torch.ops.nystra.window_covariance(qkv, table, *arguments),
    ):
        values = qkv[..., 24:]
        assert torch.isfinite(out).all()
        assert (out >= values.amin((0, 1, 2))).all()
        assert (out <= values.amax((0, 1, 2))).all()


def test_members_of_hardly_any_weight_change_nothing() -> None:
    """Sums that are zero but for rounding would be divided by a count of 1e-20."""
    qkv, table = (torch.from_numpy(array).float() for array in tensors())
    table[:] = -46
    rows = torch.arange(31)
    near = ((rows - 15).abs() < 4).float()
    table[(near[:, None] * near).flatten() > 0] = 0
    arguments = [WINDOW[name] for name in NAMES]
    got = torch.ops.nystra.window_covariance(qkv, table, *arguments).numpy()
    want = reference(qkv.numpy(), table.numpy(), **WINDOW)
    np.testing.assert_allclose(got, want, atol=1e-4)
    plainly = torch_op.window_covariance(qkv, table, **WINDOW).numpy()
    np.testing.assert_allclose(plainly, want, atol=1e-4)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_kernel_is_found(wrong: str) -> None:
    row: Case = ROW
    name, instead = WRONG[wrong]
    with patch.object(cluster_op, name, instead):
        got = plain(row, "float32", torch.float32)
    assert isinstance(got, np.ndarray)
    want = expected(row, "float32")
    assert isinstance(want, np.ndarray)
    with pytest.raises(AssertionError, match="max error"):
        check(got.astype("float32"), want, allowed(row, "float32", "cpu"))


def test_gradients_reach_everything_that_is_trained() -> None:
    qkv, table = (torch.from_numpy(array).float().requires_grad_() for array in tensors())
    torch_op.window_covariance(qkv, table, **{**WINDOW, "mask": 0}).square().sum().backward()
    assert qkv.grad is not None
    assert table.grad is not None
    assert torch.isfinite(qkv.grad).all()
    assert (table.grad.abs() > 0).float().mean() > 0.5
