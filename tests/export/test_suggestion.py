"""An export with full attention in large windows reports the gain of other mechanisms."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from nystra.core.ports.port import Port
from nystra.export.attention.cluster.parameters import Cluster
from nystra.export.attention.plan import Plan
from nystra.export.attention.site import resolve
from nystra.export.report.suggestion import suggestion
from nystra.models.swinir.network import SwinIR
from nystra.plugins import native
from small_swinir import tiny

OUTPUT = Port("output", "picture")


def said(
    window: int,
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float = 2.0,
    budget: float = 50.0,
) -> str:
    network = SwinIR(**tiny(window_size=window)).eval()
    samples = {
        name: {"input": np.random.default_rng(0).random((1, 3, side, side), np.float32)}
        for name, side in (("large", 64), ("small", 32))
    }

    def timed(runs: Iterable[str], **_: object) -> dict[str, float]:
        return {name: seconds if name == "trained" else 1.0 for name in runs}

    monkeypatch.setattr("nystra.export.report.suggestion.measure_shortest", timed)
    monkeypatch.setattr("nystra.export.report.suggestion.DEFAULT_BUDGET", budget)
    return suggestion(network, resolve(plan, network), samples, OUTPUT)


def test_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    if not native.available():
        pytest.skip("libnystra_cpu.so is not built")
    text = said(16, Plan(), monkeypatch)
    assert text.startswith("`mechanism` cluster: 2.0 times as fast, ")
    assert (
        " dB against full attention; `mechanism` auto, 50 dB: at least 2.0 times, as cluster"
        in text
    )
    assert "`mechanism` auto, 90 dB: some sites only (one" in said(
        16, Plan(), monkeypatch, budget=90.0
    )


def test_where_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(8, Plan(), monkeypatch) == ""
    assert said(16, Plan(Cluster()), monkeypatch) == ""
    assert said(16, Plan(), monkeypatch, seconds=1.0) == ""
    monkeypatch.setattr(native, "available", lambda: False)
    assert said(16, Plan(), monkeypatch) == ""
