"""A key at which the bias is -inf has no weight, whatever its value: everywhere the same."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from ml_dtypes import bfloat16

from conformance_case import Case
from conformance_models import node_model, session
from nystra.plugins import native
from nystra.plugins.library import library_path
from nystra.plugins.operators import find_schema

HUGE = 1e31
LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Given(Case):
    """A node with these inputs."""

    arrays: tuple[np.ndarray, ...] = ()

    def inputs(self, dtype: str) -> list[np.ndarray]:
        return [array.astype(dtype) for array in self.arrays]


def attention(hidden: np.ndarray) -> Given:
    """Attention to keys of which some are hidden; their values are huge."""
    rng = np.random.default_rng(0)
    keys = hidden.shape[-1]
    q, k, v = (rng.standard_normal((1, 2, count, 16)) for count in (20, keys, keys))
    v[:, :, np.isneginf(hidden).all(axis=(0, 1, 2))] = HUGE
    attributes = {"bias": 1, "scale": 0.25}
    return Given("NystraAttention", attributes, q.shape, arrays=(q, k, v, hidden))


def masks() -> dict[str, np.ndarray]:
    few = np.zeros((1, 1, 1, 24))
    few[..., 5:9] = -np.inf
    blocks = np.zeros((1, 1, 1, 600))
    blocks[..., :300] = -np.inf
    last = np.zeros((1, 1, 1, 600))
    last[..., 300:] = -np.inf
    low = np.full((1, 1, 1, 24), LOWEST)
    low[..., 5:9] = -np.inf
    each = np.zeros((1, 2, 20, 40))
    each[..., 7] = -np.inf
    each[:, :, 3] = -np.inf
    return {"few": few, "blocks": blocks, "last": last, "low": low, "each": each}


def windows(operator: str, value: float = HUGE, **rest: float) -> Given:
    """Windows in which no token is seen from the rows below it; the first row's are huge.

    A cluster's sum loses what is small beside its members, so that it gets no huge value.
    """
    rng = np.random.default_rng(1)
    sides = {"heads": 2, "head_dim": 8, "value_dim": 6, "window_h": 4, "window_w": 6}
    attributes = {**sides, "scale": 0.4, "bias": 1, **rest}
    qkv = rng.standard_normal((1, 8, 12, 2 * (8 + 8 + 6)))
    huge = qkv[:, ::4, :, 2 * 16 :]
    huge[:] = value * np.sign(huge)
    margin_h, margin_w = int(rest.get("margin_h", 0)), int(rest.get("margin_w", 0))
    rows, cols = 2 * 4 - 1 + 2 * margin_h, 2 * 6 - 1 + 2 * margin_w
    table = rng.standard_normal((rows, cols, 2))
    table[rows // 2 + margin_h + 1 :] = -np.inf  # the query is below the key
    arrays = [qkv, table.reshape(-1, 2)]
    if operator == "NystraWindowCosine":
        arrays.append(np.array([2.0, 3.0]))
    return Given(operator, attributes, qkv.shape, arrays=tuple(arrays))


CASES = {
    **{f"attention {name}": attention(hidden) for name, hidden in masks().items()},
    "softmax": windows("NystraWindowSoftmax"),
    "softmax cut": windows("NystraWindowSoftmax", shift_h=2, shift_w=3, mask=1),
    "cosine": windows("NystraWindowCosine"),
    "overlap": windows("NystraWindowOverlap", margin_h=1, margin_w=2),
    "cluster": windows(
        "NystraWindowCluster", 1.0, cluster_rows=2, cluster_cols=2, block=2, bias_block=2
    ),
}


def by_kernel(case: Given) -> np.ndarray:
    return np.asarray(
        native.run(case.operator, case.inputs("float32"), case.all_attributes(), 2)[0]
    )


def by_torch(case: Given) -> np.ndarray:
    module = importlib.import_module(f"nystra.plugins.operators.{case.folder}.torch_op")
    function: Callable[..., torch.Tensor] = getattr(module, case.folder)
    tensors = [torch.from_numpy(array) for array in case.inputs("float32")]
    return function(*tensors, **case.all_attributes()).numpy()


def by_body(case: Given) -> np.ndarray:
    return _by_onnxruntime(case, None)


def by_onnxruntime(case: Given) -> np.ndarray:
    return _by_onnxruntime(case, library_path())


def _by_onnxruntime(case: Given, library: Any) -> np.ndarray:
    runner = session(node_model(case), library)
    names = [info.name for info in runner.get_inputs()]
    feeds = dict(zip(names, case.inputs("float32"), strict=True))
    return np.asarray(runner.run(None, feeds)[0])


def expected(case: Given, dtype: str = "float32") -> np.ndarray:
    module = importlib.import_module(f"reference.{case.folder}")
    attributes = find_schema(case.operator).validate(case.attributes)
    arrays = [array.astype(np.float64) for array in case.inputs(dtype)]
    return np.asarray(module.reference(*arrays, **attributes))


def largest_error(outputs: np.ndarray, case: Given, dtype: str = "float32") -> float:
    """Return the largest error, relative to the largest output of the same token."""
    exact = expected(case, dtype)
    scale = np.abs(exact).max(axis=-1, keepdims=True)
    return float((np.abs(outputs - exact) / np.maximum(scale, 1e-6)).max())


@pytest.mark.parametrize("compute", [by_kernel, by_torch, by_body, by_onnxruntime])
@pytest.mark.parametrize("name", CASES)
def test_hidden_keys_have_no_weight(name: str, compute: Callable[[Given], np.ndarray]) -> None:
    if compute in (by_kernel, by_onnxruntime) and not native.available():
        pytest.skip("the operator library is not built")
    assert largest_error(compute(CASES[name]), CASES[name]) < 1e-4


@pytest.mark.skipif(not native.available(), reason="libnystra_cpu.so is not built")
@pytest.mark.parametrize("name", CASES)
def test_hidden_keys_have_no_weight_in_bfloat16(name: str) -> None:
    case = CASES[name]
    (outputs,) = native.run(case.operator, case.inputs("bfloat16"), case.all_attributes(), 2)
    assert outputs.dtype == bfloat16
    assert largest_error(outputs.astype(np.float64), case, "bfloat16") < 0.05
