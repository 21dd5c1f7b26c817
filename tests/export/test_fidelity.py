"""The difference of a plan is measured with the kernels and equals that of the plain functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from nystra.export.attention.mechanism import Mechanism
from nystra.export.attention.nystra import sites
from nystra.export.attention.plan import Plan
from nystra.export.attention.registry import mechanism
from nystra.export.attention.site import find_sites, resolve
from nystra.export.validate.fidelity import measure_fidelity
from nystra.models.geometry import WindowGeometry
from nystra.models.sites import exact_windows
from nystra.models.swinir.network import SwinIR
from nystra.plugins import native
from nystra.plugins.operators.operator_torch import KERNELS_VARIABLE
from nystra.plugins.operators.window_nystrom import torch_op
from small_swinir import tiny

IMAGES = {
    name: {"input": np.random.default_rng(seed).random((1, 3, 16, 24), np.float32)}
    for seed, name in enumerate(("first", "second"))
}


def network(window: int) -> SwinIR:
    torch.manual_seed(0)
    return SwinIR(**tiny(window_size=window)).eval()


PLANS = [
    mechanism("nystra", landmarks=(2, 2)),
    mechanism("nystromformer", landmarks=(2, 2)),
    mechanism("psal"),
]


@pytest.mark.full
@pytest.mark.parametrize("planned", PLANS, ids=lambda planned: planned.name)
def test_kernels_say_what_the_plain_functions_say(
    planned: Mechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native.available():
        pytest.skip("libnystra_cpu.so is not built")
    monkeypatch.delenv(KERNELS_VARIABLE, raising=False)
    ran: list[str] = []
    run = native.run
    monkeypatch.setattr(native, "run", lambda name, *given: ran.append(name) or run(name, *given))

    def measure() -> Any:
        whole = network(8)
        return measure_fidelity(whole, resolve(Plan(planned), whole), IMAGES, network(4))

    fast = measure()
    assert "NystraWindowSoftmax" in ran
    assert len(set(ran)) == 2
    ran.clear()
    monkeypatch.setenv(KERNELS_VARIABLE, "0")
    plain = measure()
    assert not ran
    for figure in ("plan", "no_bias", "as_trained"):
        assert getattr(fast, figure) == pytest.approx(getattr(plain, figure), abs=0.1)
    assert np.isfinite(fast.mean)
    for got, want in zip(fast.sites, plain.sites, strict=True):
        assert got.path == want.path
        assert got.error == pytest.approx(want.error, rel=1e-3)
        assert got.guarded == pytest.approx(want.guarded, abs=1e-3)


def test_a_probe_computes_the_plan_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = network(8)
    asked: list[Any] = []
    terms = torch_op.window_nystrom_terms
    monkeypatch.setenv(KERNELS_VARIABLE, "0")

    def counted(*given: Any, **more: Any) -> Any:
        asked.append(1)
        return terms(*given, **more)

    for module in (torch_op, sites):
        monkeypatch.setattr(module, "window_nystrom_terms", counted)
    fidelity = measure_fidelity(whole, resolve(Plan(PLANS[0]), whole), IMAGES)
    assert all(cost.guarded is not None for cost in fidelity.sites)
    # Beside full attention, and in the planned network itself.
    assert len(asked) == 2 * len(IMAGES) * len(find_sites(whole))


@pytest.mark.parametrize("shift", [0, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exact_attention_with_a_bias_is_fused(dtype: torch.dtype, shift: int) -> None:
    geometry = WindowGeometry(2, 4, 4, (8, 8), (shift, shift), shift > 0, 0.5)
    qkv, table = torch.rand(1, 16, 16, 24, dtype=dtype), torch.rand(225, 2, dtype=dtype)
    with torch.inference_mode(), torch.profiler.profile() as ran:
        exact_windows(qkv, table, geometry)
    assert "aten::_softmax" not in {event.key for event in ran.key_averages()}
