"""Attention with clustered keys in limiting cases, and that a wrong kernel would be found."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from conformance_case import Case
from conformance_cases import CASES, expected
from conformance_tolerance import TOLERANCES, allowed, check, plain
from nystra.plugins.operators.window_cluster import torch_op
from reference.window_cluster import reference
from reference.window_softmax import reference as exact
from wrong_clusters import WRONG

WINDOW: dict[str, Any] = {
    "heads": 2,
    "head_dim": 6,
    "value_dim": 5,
    "window_h": 8,
    "window_w": 8,
    "shift_h": 4,
    "shift_w": 4,
    "mask": 1,
    "bias": 1,
    "scale": 0.4,
}
ROW = next(
    case
    for case in CASES
    if case.operator == "NystraWindowCluster"
    and case.all_attributes()["bias"]
    and case.shape[1] == 32
    and case.attributes["window_h"] == 16
)


def tensors(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((1, 16, 16, 34)), rng.standard_normal((225, 2))


@pytest.mark.parametrize("mask", [0, 1])
def test_a_block_as_large_as_a_region_is_exact(mask: int) -> None:
    qkv, table = tensors()
    changes = {"mask": mask} if mask else {"mask": 0, "shift_h": 0, "shift_w": 0}
    block = {"block": 4, "bias_block": 4} if mask else {"block": 8, "bias_block": 8}
    got = reference(qkv, table, **{**WINDOW, **changes, **block})
    want = exact(qkv, table, **{**WINDOW, **changes})
    last = slice(8, 12) if mask else slice(None)  # the corner window: four regions of a block
    part = (slice(None), slice(12, 16), slice(12, 16)) if mask else (last, last, last)
    np.testing.assert_allclose(got[part], want[part], atol=1e-12)


def test_equal_keys_of_each_cluster_are_exact() -> None:
    """If keys have the four values of the seeds, clusters are exact."""
    qkv, _ = tensors()
    grid = qkv.reshape(16, 16, 34)
    grid[..., 12:24] = grid.reshape(4, 4, 4, 4, 34)[0, 0, 2, 2, 12:24]
    corners = np.random.default_rng(1).standard_normal((2, 2, 12))
    at = np.arange(16) % 8 // 4
    grid[..., 12:24] = corners[at[:, None], at[None, :]]
    free = {"shift_h": 0, "shift_w": 0, "mask": 0, "bias": 0}
    got = reference(qkv, [[0.0]], **{**WINDOW, **free, "cluster_rows": 2, "cluster_cols": 2})
    np.testing.assert_allclose(got, exact(qkv, [[0.0]], **{**WINDOW, **free}), atol=1e-12)


@pytest.mark.parametrize("factor", [0.0, 1e-3, 100.0, 1e4])
def test_every_result_is_between_the_values(factor: float) -> None:
    """Weights are positive and add up to 1, whatever the logits."""
    qkv, table = (torch.from_numpy(array).float() for array in tensors())
    qkv[..., :24] *= factor
    out = torch_op.window_cluster(qkv, table, **WINDOW)
    values = qkv[..., 24:]
    low, high = values.amin((0, 1, 2)), values.amax((0, 1, 2))
    assert torch.isfinite(out).all()
    assert ((out >= low - 1e-5) & (out <= high + 1e-5)).all()


def test_a_table_of_large_entries_overflows_nowhere() -> None:
    qkv, table = (torch.from_numpy(array).float() for array in tensors())
    want = torch_op.window_cluster(qkv, table, **WINDOW)
    got = torch_op.window_cluster(qkv, table + 200, **WINDOW)
    torch.testing.assert_close(got, want, atol=2e-4, rtol=0)


CALLS = [(family, dtype) for family, dtype in TOLERANCES if dtype in ("float32", "float16")]


@pytest.mark.parametrize(("family", "dtype"), CALLS)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_kernel_is_found(wrong: str, family: str, dtype: str) -> None:
    """In each precision the tolerance is far below the effect of a fault."""
    row: Case = ROW
    name, instead = WRONG[wrong]
    with patch.object(torch_op, name, instead):
        got = plain(row, dtype, torch.float32)
    assert isinstance(got, np.ndarray)
    want = expected(row, dtype)
    assert isinstance(want, np.ndarray)
    bound = allowed(row, dtype, family)
    with pytest.raises(AssertionError, match="max error"):
        check(got.astype(dtype), want, bound)
    assert np.abs(got - want).max() > 5 * bound


def test_gradients_reach_everything_that_is_trained() -> None:
    qkv, table = (torch.from_numpy(array).float().requires_grad_() for array in tensors())
    torch_op.window_cluster(qkv, table, **WINDOW).square().sum().backward()
    assert qkv.grad is not None
    assert table.grad is not None
    assert torch.isfinite(qkv.grad).all()
    assert (table.grad.abs() > 0).float().mean() > 0.5
