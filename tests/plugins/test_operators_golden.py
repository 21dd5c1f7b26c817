"""The attentions against the official PnP-Nystra and SwinIR, within the goldens' own rounding."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from golden_cases import compare, golden
from nystra.plugins.operators.attention_torch import (
    exp_linear,
    nystrom_attention,
    pinv,
    softmax_attention,
)
from nystra.plugins.operators.window_geometry import WindowGeometry
from nystra.plugins.operators.window_softmax.torch_op import relative_position_bias
from nystra.plugins.operators.windows_torch import token_regions, window_landmarks
from reference.pinv import reference as pinv_reference


def replay(case: str, compute: Callable[..., Tensor]) -> None:
    """Compare every run of a golden case, at 10 times float32's own error or 1e-5 of the peak."""
    runs = 0
    for run, inputs, kwargs, expected in golden(case).runs():
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        got = compute(run["name"], kwargs, **tensors).numpy()
        (facts,) = run["outputs"]
        ((name, want),) = expected.items()
        bound = max(10 * facts["max_abs_f32_minus_f64"], 1e-5 * facts["absmax"])
        error = compare(run, name, got, want)
        assert error <= bound, f"{case} {run['name']}: {error} of at most {bound}"
        runs += 1
    assert runs


def test_pinv() -> None:
    replay("pnp_pinv", lambda _, kwargs, x: pinv(x, kwargs["iters"], batch_init=True))


def test_pinv_reference() -> None:
    def compute(_: str, kwargs: dict[str, int], x: Tensor) -> Tensor:
        z = pinv_reference(x.numpy(), iterations=kwargs["iters"], batch_init=1)
        return torch.from_numpy(z)

    replay("pnp_pinv", compute)


def test_exp_linear() -> None:
    def compute(name: str, _: object, x: Tensor) -> Tensor:
        return exp_linear(x, float(name[1:].replace("_", ".")))

    replay("pnp_exp_linear", compute)


def test_nystrom_attention() -> None:
    def compute(_: str, kwargs: dict[str, int], q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        side, m = kwargs["window_size"], kwargs["num_landmarks"]
        rows = max(r for r in range(1, int(m**0.5) + 1) if m % r == 0)
        geometry = WindowGeometry(q.shape[1], q.shape[-1], v.shape[-1], (side, side), (0, 0))
        return nystrom_attention(
            q,
            k,
            v,
            window_landmarks(q, geometry, rows, m // rows),
            window_landmarks(k, geometry, rows, m // rows),
            scale=1.0,
            iterations=kwargs["iters"],
            batch_init=True,
            guard=0.0,
        )

    replay("pnp_attention_function", compute)


@pytest.mark.parametrize("case", ["swinir_window_attention_w8", "swinir_window_attention_w4x6"])
def test_window_attention(case: str) -> None:
    stored = golden(case)
    weights = {name: torch.from_numpy(array) for name, array in stored.weights().items()}
    heads, (window_h, window_w) = (stored.constructor[k] for k in ("num_heads", "window_size"))

    def compute(_: str, kwargs: object, x: Tensor, mask: Tensor | None = None) -> Tensor:
        qkv = torch.nn.functional.linear(x, weights["qkv.weight"], weights.get("qkv.bias"))
        q, k, v = qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        table = weights["relative_position_bias_table"]
        bias = relative_position_bias(table, window_h, window_w)
        if mask is not None:
            bias = (bias + mask.unsqueeze(1)).repeat(len(x) // len(mask), 1, 1, 1)
        out = softmax_attention(q, k, v, q.shape[-1] ** -0.5, bias).transpose(1, 2).flatten(2)
        return torch.nn.functional.linear(out, weights["proj.weight"], weights["proj.bias"])

    replay(case, compute)


def test_masks() -> None:
    masks = {k: v for k, v in golden("swinir_masks").data.items() if k.startswith("mask.")}
    for name, want in masks.items():
        _, size, window, shift = name.split(".")
        height, width = map(int, size.split("x"))
        side, step = int(window[2:]), int(shift[1:])
        geometry = WindowGeometry(1, 1, 1, (side, side), (step, step))
        regions = token_regions((height, width), geometry, torch.device("cpu"))
        apart = regions.unsqueeze(-1) != regions.unsqueeze(-2)
        np.testing.assert_array_equal(apart.numpy(), want.astype(bool), err_msg=name)
    assert masks


def test_relative_position_index() -> None:
    tables = {k: v for k, v in golden("swinir_masks").data.items() if k.startswith("index.")}
    for name, want in tables.items():
        window_h, window_w = map(int, name.split(".")[1].split("x"))
        entries = torch.arange((2 * window_h - 1) * (2 * window_w - 1)).unsqueeze(1)
        bias = relative_position_bias(entries, window_h, window_w)
        np.testing.assert_array_equal(bias[0].numpy(), want, err_msg=name)
    assert tables
