"""The limit to the processor time of a trace."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from accelerated import Small, compare, image
from nystra.core.errors import NystraError, TraceError
from nystra.core.ports.port import Port
from nystra.export import ExportOptions, accelerate, export_module
from nystra.export.tracing.time_limit import limit_traces, within_limit

FREE = (Port("input", "image", lengths={"channels": 3}),)
FIXED = (Port("input", "image", lengths={"batch": 1, "channels": 3, "height": 8, "width": 8}),)


def spin(seconds: float) -> None:
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        try:
            sum(range(1000))
        except Exception:  # as tracers do
            continue


def test_what_takes_longer_is_stopped_and_not_tried_again() -> None:
    with limit_traces(0.2):
        for allowed in (30.0, 0.1):
            begun = time.thread_time()
            with (
                pytest.raises(TraceError, match=r"after 0.2 s .*`static` .*batch.*`trace_limit`"),
                within_limit(FREE),
            ):
                spin(30.0)
            assert time.thread_time() - begun < allowed
        with within_limit(FIXED):
            spin(0.01)
        message = "processor time: raise `trace_limit`"
        with pytest.raises(TraceError, match=message), within_limit(FIXED):
            spin(30.0)


def test_what_ends_in_time_and_what_sleeps_is_not_stopped() -> None:
    with limit_traces(1.0), within_limit(FREE):
        time.sleep(1.6)
    spin(1.2)
    with limit_traces(0.2):
        for _ in range(3):
            with pytest.raises(ZeroDivisionError), within_limit(FREE):
                raise ZeroDivisionError
    with pytest.raises(NystraError, match="trace_limit"):
        ExportOptions(trace_limit=0.0)


class Endless(Small):
    """Does not end while a side has no number."""

    def forward(self, image: Tensor) -> Tensor:
        while isinstance(image.shape[2], torch.SymInt):
            spin(0.1)
        return super().forward(image)


def test_an_export_says_what_to_do_and_accelerate_takes_one_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nystra.export.accelerated import choosing

    limited = partial(ExportOptions, trace_limit=1.0)
    module = Endless().eval()
    with pytest.raises(TraceError, match=r"stopped after 1 s of processor time: give `static`"):
        export_module(module, tmp_path / "model.onnx", limited(speed=False))
    assert not [*tmp_path.iterdir()]
    monkeypatch.setenv("NYSTRA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(choosing, "ExportOptions", limited)
    fast = accelerate(module, backend="ort-cpu", example=image(1, 3, 32, 48))
    assert fast.report is not None
    assert fast.report.way == "ort-cpu"
    assert compare(fast, module, image(1, 3, 32, 48)) < 1e-5
    with pytest.warns(UserWarning, match=r"got the shape \(1, 3, 40, 48\), expected \(1, 3, 32"):
        assert compare(fast, module, image(1, 3, 40, 48)) == 0.0
