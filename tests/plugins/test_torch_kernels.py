"""The torch ops on the CPU run the native kernels, unless NYSTRA_TORCH_KERNELS is 0."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from native_nodes import NODES, arrays, attributes
from nystra.plugins import native
from nystra.plugins.operators import OPERATORS, find_schema
from nystra.plugins.operators.operator_torch import KERNELS_VARIABLE


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators that ran on the kernels; the test is skipped without kernels."""
    if not native.available():
        pytest.skip("libnystra_cpu.so is not built")
    monkeypatch.delenv(KERNELS_VARIABLE, raising=False)
    ran: list[str] = []
    run = native.run

    def noted(operator: str, *arguments: Any) -> Any:
        outputs = run(operator, *arguments)
        ran.append(operator)
        return outputs

    monkeypatch.setattr(native, "run", noted)
    return ran


def call(operator: str, *tensors: Tensor, **changes: Any) -> list[Tensor]:
    importlib.import_module(f"nystra.plugins.operators.{OPERATORS[operator]}.torch_op")
    every = attributes(operator, **changes)
    names = [a.name for a in find_schema(operator).attributes if a.name != "revision"]
    op = getattr(torch.ops.nystra, OPERATORS[operator])
    result = op(*tensors, *(every[name] for name in names))
    return [result] if isinstance(result, Tensor) else list(result)


@pytest.mark.parametrize("operator", NODES)
def test_float32_runs_on_the_kernel(operator: str, kernels: list[str]) -> None:
    inputs = arrays(operator)
    outputs = call(operator, *map(torch.from_numpy, inputs))
    assert kernels == [operator]
    every = {k: v for k, v in attributes(operator).items() if not k.startswith("plugin_")}
    for got, want in zip(outputs, native.run(operator, inputs, every), strict=True):
        np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("operator", NODES)
def test_the_variable_keeps_to_the_plain_function(
    operator: str, kernels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [torch.from_numpy(array) for array in arrays(operator)]
    fast = call(operator, *inputs)
    monkeypatch.setenv(KERNELS_VARIABLE, "0")
    plain = call(operator, *inputs)
    assert kernels == [operator]
    torch.testing.assert_close(plain[-1], fast[-1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_types_do_not(dtype: torch.dtype, kernels: list[str]) -> None:
    (z,) = call("NystraPinv", torch.rand(2, 4, 4).to(dtype))
    assert z.dtype == dtype
    assert kernels == []


def test_without_the_library_the_plain_function_runs(
    kernels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "available", lambda: False)
    (z,) = call("NystraPinv", torch.eye(4)[None])
    assert z.shape == (1, 4, 4)
    assert kernels == []


def test_sizes_beyond_the_kernel_run_plain(kernels: list[str]) -> None:
    (z,) = call("NystraPinv", torch.eye(129)[None], iterations=8)
    assert kernels == []
    torch.testing.assert_close(z[0], torch.eye(129), rtol=0, atol=1e-3)


def test_strided_and_differentiable_tensors_are_taken(kernels: list[str]) -> None:
    a = torch.rand(4, 4, 2).permute(2, 0, 1).requires_grad_()
    with torch.no_grad():
        (strided,), (whole,) = call("NystraPinv", a), call("NystraPinv", a.contiguous())
    assert kernels == ["NystraPinv"] * 2
    assert torch.equal(strided, whole)
